"""Costs of stitches and their groups."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from snnet_mm.runtime.budgets import UNITS
from snnet_mm.utils import check, is_number, is_whole


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
