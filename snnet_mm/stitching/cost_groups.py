"""Cost groups of resource-constrained sampling (SN-Netv2, section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping

from snnet_mm.utils import check, is_number, is_whole


def group_by_cost(costs: Mapping[int, float], step: float) -> list[tuple[int, ...]]:
    """Group stitches of similar cost, the way the authors do.

    Walking up the costs, a new group opens when a cost exceeds the first cost of the
    current group by more than ``step``. Groups and their ids are ascending in cost.

    Args:
        costs: Cost of each stitch by id.
        step: Width of a group in the unit of the costs.
    """
    right = is_number(step) and step > 0
    check(right, 'sampler.step', step, 'a positive number, in the unit of the cost')
    groups: list[list[int]] = []
    for stitch_id in sorted(costs, key=lambda i: (costs[i], i)):
        if not groups or costs[stitch_id] - costs[groups[-1][0]] > step:
            groups.append([])
        groups[-1].append(stitch_id)
    return [tuple(group) for group in groups]


def split_cost_range(
    costs: Mapping[int, float], num_groups: int
) -> list[tuple[int, ...]]:
    """Group stitches by equal parts of the range of costs; empty parts are left out."""
    check(is_whole(num_groups, 1), 'sampler.num_groups', num_groups, '1 or more')
    low, high = min(costs.values()), max(costs.values())
    width = (high - low) / num_groups or 1
    groups: dict[int, list[int]] = {}
    for stitch_id in sorted(costs, key=lambda i: (costs[i], i)):
        part = min(int((costs[stitch_id] - low) / width), num_groups - 1)
        groups.setdefault(part, []).append(stitch_id)
    return [tuple(group) for group in groups.values()]
