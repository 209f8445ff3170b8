import math
import random

import pytest

from snnet_mm.stitching import pareto_front, rank_correlation

NAN = math.nan


@pytest.mark.parametrize(
    ('costs', 'scores', 'front'),
    [
        ([1, 2, 3], [10, 20, 30], [0, 1, 2]),
        ([3, 2, 1], [30, 20, 10], [2, 1, 0]),
        ([1, 2, 3], [10, 5, 30], [0, 2]),
        ([1, 2, 3], [30, 20, 10], [0]),
        ([1, 2, 2], [10, 20, 25], [0, 2]),
        ([1, 2, 3], [10, 10, 20], [0, 2]),
        ([1, 1, 2], [10, 10, 10], [0]),
        ([2, 1, 1], [20, 10, 10], [1, 0]),
        ([5], [0], [0]),
        ([], [], []),
        ([1, 2, 3], [NAN, 10, 20], [1, 2]),
        ([1, 2, 3], [10, 20, NAN], [0, 1]),
    ],
)
def test_front_by_hand(costs, scores, front):
    costs, scores = dict(enumerate(costs)), dict(enumerate(scores))
    assert pareto_front(costs, scores) == front
    losses = {i: -s for i, s in scores.items()}
    assert pareto_front(costs, losses, higher_is_better=False) == front


def test_front_is_what_nothing_dominates():
    rng = random.Random(0)
    for _ in range(50):
        costs = {i: rng.randrange(20) for i in range(30)}
        scores = {i: rng.randrange(20) for i in range(30)}

        def beats(i, j, costs=costs, scores=scores):
            no_worse = costs[i] <= costs[j] and scores[i] >= scores[j]
            return no_worse and ((costs[i], -scores[i]) != (costs[j], -scores[j]))

        undominated = {j for j in costs if not any(beats(i, j) for i in costs)}
        points = {(costs[i], scores[i]) for i in undominated}
        first = [
            min(i for i in undominated if (costs[i], scores[i]) == p) for p in points
        ]
        assert pareto_front(costs, scores) == sorted(first, key=costs.get)


def test_front_of_the_published_stitches(published):
    costs = {i: v['flops'] for i, v in published.items()}
    scores = {i: v['mIoU'] for i, v in published.items()}
    front = pareto_front(costs, scores)
    assert front == [0, 90, 108, 91, 109, 93, 94, 96, 20, 4, 3, 2, 1]


def test_stitches_without_a_score_are_left_out():
    assert pareto_front({0: 1, 1: 2, 2: 3}, {1: 5, 2: 6}) == [1, 2]


def test_score_without_a_cost_is_refused():
    with pytest.raises(ValueError, match=r'stitches \[3, 7\] have a score but no cost'):
        pareto_front({0: 1}, {7: 1, 0: 1, 3: 2})


def test_scores_that_are_all_nan_are_refused():
    with pytest.raises(ValueError, match='score is NaN for all 2 stitches'):
        pareto_front({0: 1, 1: 2}, {0: NAN, 1: NAN})


@pytest.mark.parametrize(
    ('a', 'b', 'expected'),
    [
        ([1, 2, 3], [10, 20, 90], 1),
        ([1, 2, 3], [9, 5, 1], -1),
        ([1, 2, 3, 4], [1, 2, 4, 3], 0.8),
        ([1, 2, 2], [1, 3, 2], 0.75**0.5),
        ([1, 1], [1, 2], NAN),
        ([1, 2], [1, 1], NAN),
    ],
)
def test_rank_correlation_by_hand(a, b, expected):
    assert rank_correlation(a, b) == pytest.approx(expected, nan_ok=True)
