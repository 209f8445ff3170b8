import numpy as np
import pytest

from snnet_mm.stitching import (
    SlidingWindowSpace,
    TwoWaySpace,
    group_by_cost,
    prior_scores,
)

SPACE = TwoWaySpace((3, 7))
FLOPS = {0: 100, 1: 500, 2: 400, 3: 300, 5: 200, 6: 300, 7: 400, 8: 250}


def ranked(scores, metric):
    """Spearman's rank correlation."""
    pairs = [scores[i] for i in metric], list(metric.values())
    return np.corrcoef([np.argsort(np.argsort(x)) for x in pairs])[0, 1]


def test_prior_by_hand():
    scores = prior_scores(SPACE, FLOPS)
    # Stitch 2 leaves the fast anchor after 1 of 3 blocks, 5 the slow one after 3 of 7.
    expected = {
        0: 0,
        1: 1,
        2: 0.75 - 0.3 * 1 / 3,
        3: 0.5 - 0.3 * 2 / 3,
        5: 0.25 - 0.2 * 3 / 7,
        6: 0.5 - 0.2 * 5 / 7,
        7: 0.75 - 0.2 * 3 / 7 - 0.3 * 2 / 3,
        8: 0.375 - 0.3 * 1 / 3 - 0.2 * 5 / 7,
    }
    assert scores == pytest.approx(expected)


def test_the_prior_ranks_stitches_of_three_anchors(published_v1):
    space = SlidingWindowSpace((12, 12, 12))
    flops = {i: v['flops'] for i, v in published_v1.items()}
    top1 = {i: v['acc1'] for i, v in published_v1.items()}
    scores = prior_scores(space, flops)
    assert ranked(scores, top1) == pytest.approx(0.991, abs=1e-3)
    lost = []
    for group in group_by_cost(flops, 0.5e9):
        affordable = [i for i in flops if flops[i] <= flops[group[-1]]]
        picked = max(affordable, key=scores.get)
        lost.append(max(top1[i] for i in affordable) - top1[picked])
    assert max(lost) == pytest.approx(0.798, abs=1e-3)
