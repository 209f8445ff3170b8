"""Costs, their units, and budgets in them."""

from __future__ import annotations

import re
from typing import NamedTuple

from snnet_mm.utils import check


class CostUnit(NamedTuple):
    """Unit that a cost is printed in and that budgets have.

    Args:
        symbol: End of a budget, as in ``'120G'``.
        factor: One unit, in the unit of cost tables.
        heading: Heading of a column.
        digits: Digits after the point in a column.
        meaning: Unit of cost tables, in words.
    """

    symbol: str
    factor: float
    heading: str
    digits: int
    meaning: str

    def cell(self, value: float) -> str:
        """A cost of a cost table as the cell of a printed table."""
        number = value / self.factor
        return f'{number:.3g}' if 0 < number < 1 else f'{number:.{self.digits}f}'

    def budget(self, value: float) -> str:
        """A cost of a cost table as a budget: ``'33.5G'``."""
        return f'{value / self.factor:.4g}{self.symbol}'


UNITS = {
    'flops': CostUnit('G', 1e9, 'GFLOPs', 2, 'multiply-accumulates of one image'),
    'params': CostUnit('M', 1e6, 'params (M)', 2, 'parameters'),
    'latency': CostUnit('ms', 1.0, 'ms', 2, 'milliseconds of one forward of the batch'),
    'memory': CostUnit(
        'MB', 1e6, 'MB', 1, 'bytes at the peak of one forward of the batch'
    ),
}
_COSTS = {unit.symbol: cost for cost, unit in UNITS.items()}
BUDGETS = (
    "positive numbers with a unit: '120G' (multiply-accumulates of one image), '60M' "
    "(parameters), '25ms' (one forward of the batch) or '300MB' (memory of it)"
)


class Budget(NamedTuple):
    """A bound on one cost, in the unit of cost tables."""

    cost: str
    limit: float

    def __str__(self) -> str:
        return UNITS[self.cost].budget(self.limit)


def is_budget(text: object) -> bool:
    """Return whether a value ends in the unit of a cost."""
    return isinstance(text, str) and text.endswith(tuple(_COSTS))


def parse_budget(text: str) -> Budget:
    """Read a budget such as ``'120G'``, ``'60M'`` or ``'25ms'``."""
    match = re.fullmatch(r'\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z]+)\s*', str(text))
    right = match and match[2] in _COSTS and float(match[1]) > 0
    check(right, '--budget', text, BUDGETS)
    cost = _COSTS[match[2]]
    return Budget(cost, float(match[1]) * UNITS[cost].factor)
