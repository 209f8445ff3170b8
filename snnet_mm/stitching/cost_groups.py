"""Groups of stitches of similar cost."""

from collections.abc import Mapping

from snnet_mm.utils import check, is_number, is_whole


def group_by_cost(costs: Mapping[int, float], step: float) -> list[tuple[int, ...]]:
    """Group stitches of similar cost, as in the code of SN-Netv2.

    In ascending order of cost, a new group starts when a cost exceeds the first cost of
    the current group by more than ``step``. Groups and their ids ascend in cost.
    Section 4.2 rounds costs to multiples of ``step`` instead. For DeiT3-S/L on ImageNet
    this would give 16 groups; the code gives 13, the number in the paper.
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


def default_step(costs: Mapping[int, float], num_groups: int = 13) -> float:
    """Return the widest step that makes about as many groups as the paper has.

    SN-Netv2 draws from 13 groups at 10 GFLOPs (DeiT3-S and L, 512x512 pixels).
    """
    width = max(costs.values()) - min(costs.values())
    steps = [width / n for n in range(1, 8 * num_groups)]
    return min(steps, key=lambda s: abs(len(group_by_cost(costs, s)) - num_groups))


def split_cost_range(
    costs: Mapping[int, float], num_groups: int
) -> list[tuple[int, ...]]:
    """Group stitches by equal parts of the range of costs, without empty groups."""
    check(is_whole(num_groups, 1), 'sampler.num_groups', num_groups, '1 or more')
    low, high = min(costs.values()), max(costs.values())
    width = (high - low) / num_groups or 1
    groups: dict[int, tuple[int, ...]] = {}
    for i in sorted(costs, key=lambda i: (costs[i], i)):
        part = min(int((costs[i] - low) / width), num_groups - 1)
        groups[part] = (*groups.get(part, ()), i)
    return list(groups.values())
