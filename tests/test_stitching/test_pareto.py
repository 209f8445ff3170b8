import math

import pytest

from snnet_mm.stitching import pareto_front, rank_correlation

NAN = math.nan


@pytest.mark.parametrize(
    ('costs', 'scores', 'front'),
    [
        ([3, 2, 1], [30, 20, 10], [2, 1, 0]),
        ([1, 2, 3], [10, 5, 30], [0, 2]),
        ([1, 2, 3], [30, 20, 10], [0]),
        ([1, 2, 2], [10, 20, 25], [0, 2]),
        ([1, 1, 2], [10, 10, 10], [0]),
        ([2, 1, 1], [20, 10, 10], [1, 0]),
        ([], [], []),
        ([1, 2, 3], [10, 20, NAN], [0, 1]),
    ],
)
def test_front_by_hand(costs, scores, front):
    costs, scores = dict(enumerate(costs)), dict(enumerate(scores))
    assert pareto_front(costs, scores) == front
    losses = {i: -s for i, s in scores.items()}
    assert pareto_front(costs, losses, higher_is_better=False) == front


def test_front_of_the_published_stitches(published):
    costs = {i: v['flops'] for i, v in published.items()}
    scores = {i: v['mIoU'] for i, v in published.items()}
    front = pareto_front(costs, scores)
    assert front == [0, 90, 108, 91, 109, 93, 94, 96, 20, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ('costs', 'scores', 'words'),
    [
        ({0: 1}, {7: 1, 0: 1, 3: 2}, r'stitches \[3, 7\] have a score but no cost'),
        ({0: 1, 1: 2}, {0: NAN, 1: NAN}, 'score is NaN for all 2 stitches'),
    ],
)
def test_scores_that_choose_nothing(costs, scores, words):
    with pytest.raises(ValueError, match=words):
        pareto_front(costs, scores)


@pytest.mark.parametrize(
    ('a', 'b', 'expected'),
    [
        ([1, 2, 3], [9, 5, 1], -1),
        ([1, 2, 3, 4], [1, 2, 4, 3], 0.8),
        ([1, 2, 2], [1, 3, 2], 0.75**0.5),
        ([1, 1], [1, 2], NAN),
    ],
)
def test_rank_correlation_by_hand(a, b, expected):
    assert rank_correlation(a, b) == pytest.approx(expected, nan_ok=True)
