"""A request for stitches, parsed and validated once at the entry point."""

import os
from collections.abc import Callable, Collection, Sequence

from snnet_mm.runtime.budgets import (
    BUDGETS,
    SHARE,
    Budget,
    is_budget,
    parse_budget,
)
from snnet_mm.utils import check, is_whole

from .cost_table import CostTable
from .picking import listed, pick
from .results import StitchResults
from .space import StitchingSpace

WORDS = 'all', 'anchors', 'pareto'
SELECTIONS = (
    f"'all', 'anchors', 'pareto', ids such as '0,5,12', each once, and budgets such as "
    f"'60G,120G': {BUDGETS}"
)
COST_KEYS = '(config key: test_cfg.costs; option: --costs)'


class Selection:
    """Stitches that a user requests, and the data by which they are chosen.

    Args:
        stitches: ``'all'``, ``'anchors'``, ``'pareto'`` for the front of the results,
            one id, several ids, or budgets for the best stitch within each. Lists may
            also be strings such as ``'0,5,12'`` or ``'60G,120G'``.
        results: Results or their file; or several, one per input size and precision.
        costs: Measured costs or their file; or several, one per input size.
        metric: The metric that ranks stitches; by default that of the results.
        lower_is_better: See :func:`metric_directions`.
    """

    def __init__(
        self,
        stitches: str | int | Sequence = 'anchors',
        results: StitchResults | str | os.PathLike | Sequence | None = None,
        costs: CostTable | str | os.PathLike | Sequence | None = None,
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
        found = [
            r if isinstance(r, StitchResults) else StitchResults.read(r)
            for r in listed(results)
        ]
        self.results = [r.ranked_by(metric, lower_is_better) for r in found]
        tables = listed(costs)
        self.names = ['cost table' if isinstance(t, CostTable) else t for t in tables]
        self.costs = [
            t if isinstance(t, CostTable) else CostTable.read(t) for t in tables
        ]
        sizes = [table.input_size for table in self.costs]
        check(len({*sizes}) == len(sizes), '--costs', sizes, 'one table of each size')

    def check(self, space: StitchingSpace | None, counted: bool = False) -> None:
        """Validate as far as possible without a model; a no-op if the space is None.

        If ``counted``, shares, and budgets without results or with several cost tables,
        are left to :meth:`select`, which then uses counted costs.
        """
        if space is None:
            return
        for results in self.results:
            results.check_space(space)
        for name, table in zip(self.names, self.costs, strict=True):
            table.check_space(space, f'{name} {COST_KEYS}')
        shares = any(budget.cost == SHARE for budget in self.budgets)
        known = self.results and len(self.costs) < 2 and not shares
        if not self.budgets or known or not counted:
            self.select(space)

    def costs_at(self, counted: CostTable) -> CostTable:
        """Return the cost table at the size of ``counted``, by default ``counted``."""
        if not self.costs:
            return counted
        sizes = [table.input_size for table in self.costs]
        size = counted.input_size
        place = sizes.index(size) if size in sizes else 0
        name, table = self.names[place], self.costs[place]
        table.check_same_model(counted, f'{name} {COST_KEYS}')
        return table

    def select(
        self,
        space: StitchingSpace,
        counted: CostTable | None = None,
        log: Callable[[str], object] | None = None,
    ) -> tuple[int, ...]:
        """Return the stitch ids, in the requested order.

        Args:
            space: The stitching space.
            counted: Costs counted on the model. They select the cost table of their
                input size, and apply if there are neither results nor cost tables.
            log: Called with one line per budget.
        """
        if self.word == 'pareto':
            wanted = 'a stitches.json of tools/test.py --stitch-id all, for pareto'
            check(self.results, '--results', None, wanted)
            self.results[0].check_space(space)
            return tuple(space[i].id for i in self.results[0].front())
        if self.word:
            return space.ids if self.word == 'all' else space.anchor_ids
        if not self.budgets:
            return tuple(space[i].id for i in self.ids)
        costs = next(iter(self.costs), None)
        if counted is not None and (self.costs or not self.results):
            costs = self.costs_at(counted)
        budgets = self.budgets
        if counted is not None:  # results may lack the largest stitch
            flops = counted.column('flops').values()
            budgets = [budget.of(flops) for budget in budgets]
        found = [pick(space, budget, costs, self.results) for budget in budgets]
        for choice in found if log else ():
            log(choice.reason)
        # Two budgets may select the same stitch.
        return tuple(dict.fromkeys(choice.id for choice in found))
