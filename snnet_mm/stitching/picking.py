"""The best stitch, input size and precision within a budget."""

from collections.abc import Sequence
from typing import NamedTuple

from snnet_mm.runtime.budgets import UNITS, Budget, parse_budget
from snnet_mm.utils import check

from .cost_table import CostTable
from .prior import prior_scores
from .results import StitchResults, check_comparable, variant_of
from .space import StitchingSpace

PRIOR_LOSES = (
    'a guess, which on published models lost 0.5 points of mIoU or top-1 on average '
    'and 2.4 at most; --stitch-id all measures'
)


class Choice(NamedTuple):
    """A stitch, the input size and precision that it runs in, and why it was chosen."""

    id: int
    input_size: tuple[int, int]
    precision: str | None
    reason: str


def pick(
    space: StitchingSpace,
    budget: str | Budget,
    costs: CostTable | None = None,
    results: StitchResults | Sequence[StitchResults] | None = None,
) -> Choice:
    """Choose the best stitch within a budget, of all sizes and precisions given.

    Without results it is the one that :func:`prior_scores` ranks first, which is a
    guess. Of equally good ones it is the cheapest, then that of the first table.

    Args:
        space: The stitching space.
        budget: Such as ``'120G'``, ``'60M'`` or ``'25ms'``.
        costs: Costs of the stitches; by default those that the results hold.
        results: Results; without costs also several, one of each size and precision.
    """
    budget = budget if isinstance(budget, Budget) else parse_budget(budget)
    results = listed(results)
    needed = 'results or a cost table, which budgets go by'
    check(results or costs, '--results', None, needed)
    if results:
        check_comparable(results)
    pairs = [(r, r) for r in results]
    if costs is not None:
        check(len(results) < 2, '--costs', 'a table', 'none with several results')
        pairs = [(costs, results[0] if results else None)]
    found, errors = [], []
    for priced, own in pairs:
        where = _where(priced, results)
        try:
            found.append((*_best(space, budget, priced, own), priced, where))
        except ValueError as error:  # nothing is that cheap here
            errors.append(where + ': ' * bool(where) + str(error))
    if not found:
        raise ValueError('; '.join(errors))
    _, best, reason, priced, where = max(found, key=lambda of: of[0])
    return Choice(best, *variant_of(priced), f'{reason}; {where}' if where else reason)


def _best(
    space: StitchingSpace,
    budget: Budget,
    priced: CostTable | StitchResults,
    results: StitchResults | None,
) -> tuple[tuple, int, str]:
    """Return the rating of the best stitch, larger if better, its id and the reason."""
    if results is None:
        sign, scores = 1, prior_scores(space, priced.column('flops'))
    else:
        results.check_space(space)
        sign, scores = 1 if results.higher_is_better else -1, results.scores()
    column, unit = priced.column(budget.cost), UNITS[budget.cost]
    affordable = (i for i in scores if column[space[i].id] <= budget.limit)
    found = sorted(affordable, key=lambda i: (-sign * scores[i], column[i], i))
    if not found:
        cheapest = min(scores, key=lambda i: (column[i], i))
        which = 'stitch' if results is None else 'evaluated stitch'
        raise ValueError(
            f'budget {budget}: no {which} is that cheap; the cheapest is stitch '
            f'{cheapest} ({space.describe(space[cheapest])}) with '
            f'{unit.budget(column[cheapest])}'
        )
    best = found[0]
    evidence = f'the prior, {PRIOR_LOSES}'
    if results is not None:
        second = [f'stitch {i} with {scores[i]:.4g}' for i in found[1:2]] or ['none']
        evidence = (
            f'results that measured {len(results.complete)} of {len(space)} stitches: '
            f'{results.metric} {scores[best]:.4g}; runner-up {second[0]}'
        )
    what = f'stitch {best} ({space.describe(space[best])}, {unit.budget(column[best])})'
    reason = f'budget {budget} {budget.meaning}: {what}, by {evidence}'
    return (sign * scores[best], -priced.column('flops')[best]), best, reason


def _where(one: CostTable | StitchResults, of: Sequence[StitchResults]) -> str:
    """Return what tells one of several results from the others, in words."""
    (size, precision), parts = variant_of(one), []
    sizes, precisions = ({variant_of(r)[n] for r in of} for n in (0, 1))
    if len(sizes) > 1:
        parts.append('images of {}x{}'.format(*size))
    if len(precisions) > 1:
        parts.append(f'in {precision or "unknown precision"}')
    return ' '.join(parts)


def listed(given: object) -> list:
    """Return one thing, several or None as a list."""
    if given is None:
        return []
    return [*given] if isinstance(given, list | tuple) else [given]
