"""Budgets, units of costs, and the Pareto front."""

import math
import re
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from .checks import check

Key = TypeVar('Key', bound=Hashable)


class CostUnit(NamedTuple):
    """Unit of a cost in printed tables and, except for memory, in budgets."""

    symbol: str  # suffix of a budget
    factor: float  # one unit, expressed in the unit of cost tables
    heading: str
    digits: int  # decimals in a column
    meaning: str  # description of the unit of cost tables

    def cell(self, value: float) -> str:
        """Format a cost of a cost table for a cell of a printed table."""
        number = value / self.factor
        return f'{number:.3g}' if 0 < number < 1 else f'{number:.{self.digits}f}'

    def budget(self, value: float) -> str:
        """Format a cost of a cost table as a budget that allows it: ``'33.5G'``."""
        number = value / self.factor
        step = 10 ** (math.floor(math.log10(number)) - 3) if number > 0 else 1
        # Four significant digits without exponent, rounded up except for float errors.
        rounded = f'{math.ceil(round(number / step, 6)) * step:.12f}'
        return rounded.rstrip('0').rstrip('.') + self.symbol


UNITS = {
    'flops': CostUnit('G', 1e9, 'GFLOPs', 2, 'multiply-accumulates of one image'),
    'params': CostUnit('M', 1e6, 'params (M)', 2, 'parameters'),
    'latency': CostUnit('ms', 1.0, 'ms', 2, 'milliseconds of one forward of the batch'),
    'memory': CostUnit(
        'MB', 1e6, 'MB', 1, 'bytes at the peak of one forward of the batch'
    ),
}
SHARE = 'share'  # of the FLOPs of the largest stitch
_COSTS = {UNITS[c].symbol: c for c in ('flops', 'params', 'latency')} | {'%': SHARE}
BUDGET_TEXT = (
    "a positive number with a unit: '120G' (multiply-accumulates of one image), '60M' "
    "(parameters), '25ms' (one forward of the batch) or '50%' (of the "
    'multiply-accumulates of the largest stitch)'
)


class Budget(NamedTuple):
    """A bound on one cost, in the unit of cost tables, or a share such as 0.5."""

    cost: str
    limit: float

    def of(self, flops: Iterable[float]) -> 'Budget':
        """Convert a share to FLOPs, given those of all stitches; keep other budgets."""
        if self.cost != SHARE:
            return self
        return Budget('flops', self.limit * max(flops))

    def __str__(self) -> str:
        if self.cost == SHARE:
            return f'{100 * self.limit:g}%'
        return UNITS[self.cost].budget(self.limit)


def is_budget(text: object) -> bool:
    """Return whether a value is a string that ends in the unit of a cost."""
    return isinstance(text, str) and text.endswith(tuple(_COSTS))


def parse_budget(text: str, key: str = '--budget') -> Budget:
    """Parse a budget such as ``'120G'``, ``'60M'``, ``'25ms'`` or ``'50%'``.

    Args:
        text: The budget.
        key: Config key or option that has it, for messages.
    """
    match = re.fullmatch(r'\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z]+|%)\s*', str(text))
    right = match and match[2] in _COSTS and float(match[1]) > 0
    check(right, key, text, BUDGET_TEXT)
    cost = _COSTS[match[2]]
    factor = 0.01 if cost == SHARE else UNITS[cost].factor
    # Without rounding, 4.1M becomes 4099999.9999999995.
    return Budget(cost, round(float(match[1]) * factor, 6))


def drop_nan(scores: Mapping[Key, float], name: str = 'score') -> dict[Key, float]:
    """Remove stitches whose score is NaN, as they cannot be ranked."""
    numbers = {key: score for key, score in scores.items() if not math.isnan(score)}
    if scores and not numbers:
        raise ValueError(
            f'{name} is NaN for all {len(scores)} stitches: none can be chosen by it'
        )
    return numbers


def pareto_front(
    costs: Mapping[Key, float],
    scores: Mapping[Key, float],
    higher_is_better: bool = True,
) -> dict[Key, float]:
    """Return the costs of the stitches on the Pareto front, ascending.

    Each has a strictly better score than every other stitch of equal or lower cost. Of
    stitches equal in both, the first is returned. NaN scores are excluded.
    """
    unknown = sorted(set(scores) - set(costs))
    if unknown:
        raise ValueError(f'stitches {unknown} have a score but no cost')
    sign, front, best = 1 if higher_is_better else -1, {}, -math.inf
    scores = {key: sign * score for key, score in drop_nan(scores).items()}
    for key in sorted(scores, key=lambda key: (costs[key], -scores[key])):
        if not front or scores[key] > best:
            front[key], best = costs[key], scores[key]
    return front


def best_within(front: Mapping[Key, float], limit: float) -> Key | None:
    """Return the best stitch of a front within a limit; None if there is none.

    Args:
        front: Costs of stitches, worst stitch first, as of :func:`pareto_front`.
        limit: Largest cost.
    """
    return next((key for key in reversed(front) if front[key] <= limit), None)
