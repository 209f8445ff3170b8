import math

import pytest
import torch

from snnet_mm.tasks.mmseg import RunningDepthMetric
from snnet_mm.tasks.mmseg.depth_metric import crop_slices


def sample(pred, truth, **info):
    maps = dict(pred_depth_map=pred, gt_depth_map=truth)
    return {k: dict(data=torch.tensor(v)[None]) for k, v in maps.items()} | info


def evaluate(*samples, **settings):
    metric = RunningDepthMetric(**settings)
    for s in samples:
        metric.process({}, [s])
    return metric.evaluate(len(samples))


def test_running_depth_metric_closed_forms():
    pred = [[1.2, 2.0], [4.0, 9.0]]
    truth = [[1.0, 2.0], [2.5, 0.0]]  # ratios 1.2, 1, 1.6; one pixel without truth
    metrics = evaluate(sample(pred, truth))
    assert list(metrics) == ['delta1', 'delta2', 'delta3', 'AbsRel', 'RMSE', 'log10']
    error = (0.2 + 0 + 0.6) / 3, math.sqrt((0.04 + 0 + 2.25) / 3)
    expected = 2 / 3, 2 / 3, 1, *error, (math.log10(1.2) + math.log10(1.6)) / 3
    assert tuple(metrics.values()) == pytest.approx(expected, rel=1e-6)
    low = evaluate(sample([[1.9, 1.2]], [[2.0, 2.0]]))
    assert [low[f'delta{i}'] for i in (1, 2, 3)] == [0.5, 0.5, 1]


def test_running_depth_metric_means_over_images():
    """Not over pixels."""
    images = [
        sample([[1.5, 2.0, 2.0]], [[1.0, 0.0, 0.0]]),
        sample([[3.0] * 3], [[2.0] * 3]),
        sample([[3.0] * 3], [[0.0] * 3]),  # nothing to measure
    ]
    metrics = evaluate(*images)
    assert metrics['RMSE'] == pytest.approx((0.5 + 1) / 2)
    assert metrics['AbsRel'] == pytest.approx(0.5)


def test_running_depth_metric_range_of_depths():
    one = sample([[0.0, 50.0, 4.0]], [[1.0, 9.0, 12.0]])
    metrics = evaluate(one, min_depth=0.5, max_depth=10)
    # Clamped to 0.5 and 10; the truth of the last pixel is out of the range.
    assert metrics['RMSE'] == pytest.approx(math.sqrt((0.25 + 1) / 2))


@pytest.mark.parametrize(
    'crop, size, rows, columns',
    [
        ('eigen', (480, 640), (45, 471), (41, 601)),
        ('eigen', (240, 320), (22, 235), (20, 300)),
        ('garg', (375, 1242), (153, 371), (44, 1197)),
        (None, (7, 9), (None, 7), (None, 9)),
    ],
)
def test_crop_slices_scale_with_the_image(crop, size, rows, columns):
    assert crop_slices(crop, *size) == (slice(*rows), slice(*columns))
