"""Costs of stitches, their units and groups, and budgets."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from snnet_mm.utils import check, is_number, is_whole


class CostUnit(NamedTuple):
    """Unit that a cost is printed in and that budgets have."""

    symbol: str  # end of a budget
    factor: float  # one unit, in the unit of cost tables
    heading: str
    digits: int  # after the point, in a column
    meaning: str  # of the unit of cost tables

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

    @property
    def meaning(self) -> str:
        """The quantity that is bounded: ``'parameters'``."""
        return UNITS[self.cost].meaning

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


class Cost(NamedTuple):
    """Cost of one stitch.

    ``flops`` are multiply-accumulates of one image, as in the papers; ``params`` are
    those that the stitch uses, with low-rank updates merged. ``latency`` (milliseconds)
    and ``memory`` (bytes at the peak) of one forward of a batch are None if they were
    not measured.
    """

    flops: int
    params: int
    latency: float | None = None
    memory: int | None = None


def cost_column(rows: Mapping[int, Any], name: str) -> dict[int, float]:
    """One cost by stitch id, of rows that have the fields of :class:`Cost`."""
    check(name in UNITS, 'cost', name, UNITS)
    column = {i: getattr(row, name) for i, row in rows.items()}
    if None in column.values():
        raise ValueError(
            f'the {name} of these stitches was not measured; measure it with '
            f'tools/analysis_tools/stitch_table.py CONFIG --{name} and give the '
            'costs.json that it writes (config key: StitchSamplingHook.costs; option: '
            '--costs)'
        )
    return column


def group_by_cost(costs: Mapping[int, float], step: float) -> list[tuple[int, ...]]:
    """Group stitches of similar cost, the way the authors do (SN-Netv2, section 4.2).

    Walking up the costs, a new group opens when a cost exceeds the first cost of the
    current group by more than ``step``. Groups and their ids are ascending in cost.
    """
    right = is_number(step) and step > 0
    check(right, 'sampler.step', step, 'a positive number, in the unit of the cost')
    groups: list[tuple[int, ...]] = []
    for i in sorted(costs, key=lambda i: (costs[i], i)):
        if groups and costs[i] - costs[groups[-1][0]] <= step:
            groups[-1] += (i,)
        else:
            groups.append((i,))
    return groups


def split_cost_range(
    costs: Mapping[int, float], num_groups: int
) -> list[tuple[int, ...]]:
    """Group stitches by equal parts of the range of costs; empty parts are left out."""
    check(is_whole(num_groups, 1), 'sampler.num_groups', num_groups, '1 or more')
    low, high = min(costs.values()), max(costs.values())
    width = (high - low) / num_groups or 1
    groups: dict[int, tuple[int, ...]] = {}
    for i in sorted(costs, key=lambda i: (costs[i], i)):
        part = min(int((costs[i] - low) / width), num_groups - 1)
        groups[part] = (*groups.get(part, ()), i)
    return list(groups.values())
