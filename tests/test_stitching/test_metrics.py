import math

import pytest

from snnet_mm.stitching import key_metric, metric_directions, pareto_front


def test_metric_directions_of_known_metrics():
    lower, higher = ('nyu/RMSE', 'nyu/val/abs_rel'), ('mIoU', 'coco/segm_mAP_50')
    known = dict.fromkeys(lower, 'lower') | dict.fromkeys(higher, 'higher')
    assert metric_directions([*known, 'kappa']) == known
    found = metric_directions([*known, 'kappa'], ['none'])
    assert found == known | dict(kappa='higher')


def test_metric_directions_user_says_which_are_lower():
    names = ['a/kappa', 'energy', 'D1', 'mIoU']
    found = metric_directions(names, ['Kappa', 'd1'])
    assert list(found.values()) == ['lower', 'higher', 'lower', 'higher']
    known = dict(energy='lower')
    assert metric_directions(names, ['kappa'], known)['energy'] == 'lower'
    with pytest.raises(ValueError, match="'kapa' .*--lower-is-better"):
        metric_directions(names, ['kapa'])


@pytest.mark.parametrize(
    ('metrics', 'key'),
    [
        (['coco/segm_mAP', 'coco/bbox_mAP'], 'coco/bbox_mAP'),
        (['AbsRel', 'nyu/rmse'], 'nyu/rmse'),
        (['kappa', 'mAcc'], 'kappa'),
        (['aAcc', 'mDice', 'mIoU'], 'mIoU'),
    ],
)
def test_key_metric_is_what_ranks(metrics, key):
    assert key_metric(metrics) == key


@pytest.mark.parametrize(
    ('costs', 'scores', 'front'),
    [
        ([3, 2, 1], [30, 20, 10], [2, 1, 0]),
        ([1, 2, 3], [10, 5, 30], [0, 2]),
        ([1, 1, 2], [10, 10, 10], [0]),
        ([2, 1, 1], [20, 10, 10], [1, 0]),
        ([1, 2, 3], [10, 20, math.nan], [0, 1]),
    ],
)
def test_pareto_front_by_hand(costs, scores, front):
    costs, scores = dict(enumerate(costs)), dict(enumerate(scores))
    assert [*pareto_front(costs, scores)] == front
    losses = {i: -s for i, s in scores.items()}
    assert [*pareto_front(costs, losses, higher_is_better=False)] == front
