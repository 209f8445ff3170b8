"""A request for stitches, parsed and validated once at the entry point."""

import os
from collections.abc import Callable, Collection, Sequence

from snnet_mm.runtime.budgets import BUDGET_TEXT, Budget, is_budget, parse_budget
from snnet_mm.utils import check, is_whole

from .picking import pick_stitch
from .space import StitchingSpace
from .table import StitchTable

WORDS = 'all', 'anchors', 'pareto'
SELECTIONS = (
    f"'all', 'anchors', 'pareto', ids such as '0,5,12', each once, and budgets such as "
    f"'60G,120G': {BUDGET_TEXT}"
)


class Selection:
    """Stitches that a user requests, and the table by which they are chosen.

    Args:
        stitches: ``'all'``, ``'anchors'``, ``'pareto'`` for the front of the results,
            one id, several ids, or budgets for the best stitch within each. Lists may
            also be strings such as ``'0,5,12'`` or ``'60G,120G'``.
        results: Results, measured costs, or their files; several are merged.
        metric: The metric that ranks stitches; by default that of the results.
        lower_is_better: See :func:`metric_directions`.

    Attributes:
        table: The merged results and costs; None without any.
    """

    def __init__(
        self,
        stitches: str | int | Sequence = 'anchors',
        results: StitchTable | str | os.PathLike | Sequence | None = None,
        metric: str | None = None,
        lower_is_better: Collection[str] | None = None,
    ) -> None:
        self.word = stitches if stitches in WORDS else None
        items = stitches
        if isinstance(items, str):
            items = [part.strip() for part in items.split(',')]
        items = tuple(items) if isinstance(items, Collection) else (items,)
        self.ids: tuple[int, ...] = ()
        self.budgets: tuple[Budget, ...] = ()
        if any(map(is_budget, items)):
            self.budgets = tuple(map(parse_budget, items))
        elif self.word is None:
            try:
                ids = [int(i) for i in items if isinstance(i, str) or is_whole(i)]
            except ValueError:
                ids = []
            right = 0 < len(ids) == len(items) == len({*ids})
            check(right, '--stitch-id', ','.join(map(str, items)), SELECTIONS)
            self.ids = tuple(ids)
        self.table = None
        if results is not None:
            given: Sequence = (
                results if isinstance(results, list | tuple) else [results]
            )
            found = [
                t if isinstance(t, StitchTable) else StitchTable.read(t) for t in given
            ]
            found = [table.ranked_by(metric, lower_is_better) for table in found]
            self.table = StitchTable.merge(*found) if found else None

    def select(
        self,
        space: StitchingSpace,
        counted: StitchTable | None = None,
        log: Callable[[str], object] | None = None,
    ) -> tuple[int, ...]:
        """Return the stitch ids, in the requested order.

        Args:
            space: The stitching space.
            counted: Costs counted on the model. Budgets then choose among results and
                measured costs of the same input size, if there are any.
            log: Called with one line per budget.
        """
        if self.table is not None:
            self.table.check_space(space, 'the table (option: --results)')
        if self.word == 'pareto':
            expected = 'a stitches.json of tools/test.py --stitch-id all, for pareto'
            check(self.table is not None, '--results', None, expected)
            return tuple(dict.fromkeys(space[row.id].id for row in self.table.front()))
        if self.word:
            return space.ids if self.word == 'all' else space.anchor_ids
        if not self.budgets:
            return tuple(space[i].id for i in self.ids)
        table = self._table_for_budgets(counted)
        found = [pick_stitch(space, budget, table) for budget in self.budgets]
        for choice in found if log else ():
            log(choice.reason)
        # Two budgets may select the same stitch.
        return tuple(dict.fromkeys(choice.id for choice in found))

    def _table_for_budgets(self, counted: StitchTable | None) -> StitchTable:
        expected = 'results or a cost table, which a budget needs'
        check(self.table or counted, '--results', None, expected)
        if None in (self.table, counted):
            return self.table or counted
        # Results may lack the largest stitch, of which budgets may be shares.
        return StitchTable.merge(counted, self.table.for_size(counted.input_size))
