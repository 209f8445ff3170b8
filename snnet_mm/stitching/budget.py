"""Budgets: the best stitch that one can afford."""

from __future__ import annotations

import re
from typing import NamedTuple

from .cost_table import CostTable
from .prior import prior_scores
from .results import StitchResults
from .space import StitchingSpace

# The cost that a unit belongs to, and what one unit of it is in a cost table.
BUDGET_UNITS = {'G': ('flops', 1e9), 'M': ('params', 1e6), 'ms': ('latency', 1.0)}
ALLOWED = (
    "allowed are positive numbers with a unit: '120G' (multiply-accumulates of one "
    "image), '60M' (parameters) or '25ms' (one forward of the batch) (config key: "
    'budget; option: --budget)'
)


class Budget(NamedTuple):
    """A bound on one cost, in the unit of cost tables."""

    cost: str
    limit: float

    def __str__(self) -> str:
        return format_cost(self.cost, self.limit)


def parse_budget(text: str) -> Budget:
    """Read a budget such as ``'120G'``, ``'60M'`` or ``'25ms'``.

    Raises:
        ValueError: If it is no positive number with one of these units.
    """
    match = re.fullmatch(r'\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z]*)\s*', str(text))
    if match is None:
        raise ValueError(f'budget {text!r}; {ALLOWED}')
    number, unit = match.groups()
    if not unit:
        raise ValueError(f'budget {text!r} has no unit; {ALLOWED}')
    if unit not in BUDGET_UNITS:
        raise ValueError(f'budget {text!r} has the unit {unit!r}; {ALLOWED}')
    if float(number) == 0:
        raise ValueError(f'budget {text!r} buys nothing; {ALLOWED}')
    cost, factor = BUDGET_UNITS[unit]
    return Budget(cost, float(number) * factor)


def format_cost(cost: str, value: float) -> str:
    """A cost in the unit of cost tables as a budget would say it: ``'33.5G'``.

    Raises:
        ValueError: If there are no budgets of this cost, as of memory.
    """
    for unit, (name, factor) in BUDGET_UNITS.items():
        if name == cost:
            return f'{value / factor:.4g}{unit}'
    raise ValueError(f'there are no budgets of {cost!r}; {ALLOWED}')


def pick(
    space: StitchingSpace,
    budget: str | Budget,
    costs: CostTable | None = None,
    results: StitchResults | None = None,
) -> int:
    """The best stitch within a budget.

    With results it is the best of the evaluated stitches. Without, it is the one of
    the whole space that :func:`prior_scores` ranks first, which is a guess.

    Args:
        space: The stitching space.
        budget: Such as ``'120G'``, ``'60M'`` or ``'25ms'``.
        costs: Costs of the stitches; by default those that the results hold.
        results: What an evaluation found.

    Returns:
        Its stitch id; of equally good stitches, the cheapest.

    Raises:
        ValueError: If the budget cannot be read or no stitch is that cheap, there are
            neither costs nor results, the results are of another space, or the cost
            that the budget bounds was not measured.
    """
    if not isinstance(budget, Budget):
        budget = parse_budget(budget)
    if costs is None and results is None:
        raise ValueError(
            f'a budget of {budget} needs a cost table or results (option: --results)'
        )
    scores, sign = _scores(space, costs, results)
    column = (costs if costs is not None else results).column(budget.cost)
    affordable = [i for i in scores if column[i] <= budget.limit]
    if not affordable:
        cheapest = min(scores, key=lambda i: (column[i], i))
        which = 'stitch' if results is None else 'evaluated stitch'
        raise ValueError(
            f'budget {budget}: no {which} is that cheap; the cheapest is stitch '
            f'{cheapest} ({space.describe(space[cheapest])}) with '
            f'{format_cost(budget.cost, column[cheapest])}'
        )
    return min(affordable, key=lambda i: (-sign * scores[i], column[i], i))


def _scores(
    space: StitchingSpace, costs: CostTable | None, results: StitchResults | None
) -> tuple[dict[int, float], int]:
    """Score by stitch id, and 1 if more of it is better, else -1."""
    if results is None:
        return prior_scores(space, costs.column('flops')), 1
    results.check_space(space)
    scores = {space[i].id: score for i, score in results.scores().items()}
    return scores, 1 if results.higher_is_better else -1
