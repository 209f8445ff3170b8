import pytest

from snnet_mm.stitching.metrics import key_metric, metric_directions


@pytest.mark.parametrize(
    ('metric', 'direction'),
    [
        ('mIoU', 'higher'),
        ('nyu/RMSE', 'lower'),
        ('nyu/val/abs_rel', 'lower'),
        ('coco/segm_mAP_50', 'higher'),
        ('single-label/f1-score', 'higher'),
    ],
)
def test_directions_of_known_metrics(metric, direction):
    known = {metric: direction}
    assert metric_directions([metric, 'kappa']) == known
    assert metric_directions([metric, 'kappa'], ['none']) == known | {'kappa': 'higher'}


def test_a_user_says_which_are_lower():
    names = ['a/kappa', 'energy', 'D1', 'mIoU']
    found = metric_directions(names, ['Kappa', 'd1'])
    assert list(found.values()) == ['lower', 'higher', 'lower', 'higher']
    known = dict(energy='lower')
    assert metric_directions(names, ['kappa'], known)['energy'] == 'lower'
    with pytest.raises(ValueError, match="'kapa'.* 'energy', .*--lower-is-better"):
        metric_directions(names, ['kapa'])


@pytest.mark.parametrize(
    ('metrics', 'key'),
    [
        (['coco/segm_mAP', 'coco/bbox_mAP'], 'coco/bbox_mAP'),
        (['AbsRel', 'nyu/rmse'], 'nyu/rmse'),
        (['kappa', 'mAcc'], 'kappa'),
    ],
)
def test_the_metric_that_ranks(metrics, key):
    assert key_metric(metrics) == key
