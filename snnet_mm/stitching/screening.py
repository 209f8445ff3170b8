"""Which stitches a quick look at few images leaves for a full evaluation."""

from __future__ import annotations

from .cost_groups import split_cost_range
from .results import StitchResults
from .routes import ANCHOR_KIND

NUM_BUDGET_GROUPS = 10


def best_per_budget_group(results: StitchResults, keep: int) -> tuple[int, ...]:
    """The anchors, and the best few stitches of every budget group.

    Groups are ten equal parts of the range of FLOPs.

    Args:
        results: What the quick look found.
        keep: How many stitches of a group stay, at most.

    Returns:
        Stitch ids, ascending.

    Raises:
        ValueError: If ``keep`` is not positive.
    """
    if keep < 1:
        raise ValueError(
            f'keep={keep}; allowed is 1 stitch per budget group or more (config key: '
            'test_cfg.keep; option: --keep)'
        )
    scores = {r.id: results.score(r) for r in results.stitches}
    sign = -1 if results.higher_is_better else 1
    chosen = {r.id for r in results.stitches if r.kind == ANCHOR_KIND}
    flops = {r.id: r.flops for r in results.stitches}
    for group in split_cost_range(flops, NUM_BUDGET_GROUPS):
        chosen |= set(sorted(group, key=lambda i: (sign * scores[i], i))[:keep])
    return tuple(sorted(chosen))
