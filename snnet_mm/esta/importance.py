"""Choosing stitches by the importance that training found (ESTA, section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from snnet_mm.stitching import (
    CostTable,
    StitchingSpace,
    StitchResults,
    split_cost_range,
)
from snnet_mm.stitching.metrics import DIRECTIONS, HIGHER
from snnet_mm.utils import check

# Ranks stitches: the paper deploys the most important one of every cost interval.
DEPLOYMENT = 'deployment'
IMPORTANCE = 'importance'
# For the scores of runs from before results held directions.
DIRECTIONS.update({DEPLOYMENT: HIGHER, IMPORTANCE: HIGHER})


def importance_results(
    space: StitchingSpace,
    costs: CostTable,
    scores: Mapping[int, float],
    num_groups: int = 15,
    cost: str = 'flops',
) -> StitchResults:
    """Return scores as results, so that stitches are chosen by them as by others.

    The ranking metric, ``'deployment'``, is ``n`` for the most important stitch of the
    n-th cost interval, and lies between ``n - 2`` and ``n - 1`` for the others of it.
    Scores of different intervals are not comparable. So a budget buys the dearest of
    the deployed stitches, and the Pareto front is these, and what is cheaper than all.

    Args:
        space: The stitching space.
        costs: Costs of its stitches.
        scores: Importance by stitch id; stitches without are left out.
        num_groups: See :class:`ImportanceSampler`.
        cost: See :class:`ImportanceSampler`.
    """
    scored = 'the scores of a training'
    check(scores, 'default_hooks.stitch_sampling.sampler', scores, scored)
    for stitch_id in scores:
        space[stitch_id]  # refuses an unknown id
    metrics = {}
    groups = split_cost_range(costs.column(cost), num_groups)
    for n, group in enumerate(groups, start=1):
        scored = [i for i in group if i in scores]
        if not scored:
            continue
        best = max(scored, key=lambda i: (scores[i], -i))
        total = sum(math.exp(scores[i] - scores[best]) for i in scored)
        for i in scored:
            share = math.exp(scores[i] - scores[best]) / total
            place = n if i == best else n - 2 + share
            metrics[i] = {DEPLOYMENT: place, IMPORTANCE: scores[i]}
    return StitchResults.collect(space, costs, dict(sorted(metrics.items())))
