import math

import pytest
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.logging import MMLogger

from snnet_mm.evaluation.metric_buffers import (
    MetricBuffers,
    numbers_of,
    values_of_few,
)


class Sum(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results += data_samples

    def compute_metrics(self, results):
        return dict(sum=sum(results), number=len(results))


class Largest(Sum):
    def compute_metrics(self, results):
        return dict(largest=max(results))


def test_metric_buffers_own_results_of_every_stitch():
    """Batch n holds the predictions n and 10 n; those of stitch i are shifted by i."""
    evaluator = Evaluator([Sum(), Largest()])
    buffers = MetricBuffers(evaluator, (5, 2))
    for n in range(7):
        for i in buffers.ids:
            with buffers.of(i):
                for metric in evaluator.metrics:
                    metric.process(None, [n + i, 10 * n + i])
        buffers.names += [f'{n}.png', f'{10 * n}.png']
    scores = buffers.scores(
        MMLogger.get_current_instance(), num_images=13
    )  # of which a sampler repeated one
    for i in (5, 2):
        values = [f * n + i for n in range(7) for f in (1, 10)][:13]
        wanted = dict(sum=sum(values), number=13, largest=max(values))
        assert scores[i] == (wanted, 13, None)
    assert evaluator.metrics[0].results == []


class CocoMetric(Sum):
    """Has the names of mmdet's metric, which is recognised by its class name."""

    default_prefix = 'coco'
    format_only, metrics, metric_items, _coco_api = False, ['bbox'], ['mAP'], None


@pytest.mark.parametrize(
    ('sets', 'values', 'wanted'),
    [
        (None, {}, {'coco/bbox_mAP': 0}),  # nothing was detected
        (None, {'coco/bbox_mAP': -1}, {'coco/bbox_mAP': math.nan}),
        ('A', {'A/coco/bbox_mAP': 3}, {'A/coco/bbox_mAP': 3}),
        (
            'AB',
            {'B/coco/bbox_mAP': -1},
            {'A/coco/bbox_mAP': 0, 'B/coco/bbox_mAP': math.nan},
        ),
        # Renamed by an evaluator of somebody else.
        (None, {'night/coco/bbox_mAP': 3}, {'night/coco/bbox_mAP': 3}),
    ],
)
def test_numbers_of_makes_no_metric_up(sets, values, wanted):
    evaluator = Evaluator([CocoMetric() for _ in sets or 'A'])
    if sets:
        evaluator.dataset_prefixes = [*sets]
    assert numbers_of(evaluator, values) == pytest.approx(wanted, nan_ok=True)


def test_numbers_of_own_prefix_of_metric():
    evaluator = Evaluator([CocoMetric(prefix='night')])
    assert numbers_of(evaluator, {}) == {'night/bbox_mAP': 0}
    assert numbers_of(evaluator, {'night/bbox_mAP': 1}) == {'night/bbox_mAP': 1}


class TwoClasses(Sum):
    """As an area under a curve, which few images may not define."""

    def compute_metrics(self, results):
        if len({*results}) < 2:
            raise ValueError('a single class')
        return dict(area=1.0)


class Accuracy(TwoClasses):
    """Has the name of mmpretrain's metric, which any number of images defines."""


def test_values_of_few_images():
    def values(*metrics, results=(1, 1)):
        for metric in metrics:
            metric.results = [*results]
        return values_of_few(Evaluator([*metrics]))

    assert values(Sum(prefix='a'), Largest()) == {
        'a/sum': 2,
        'a/number': 2,
        'largest': 1,
    }
    assert values(Sum(), TwoClasses()) is None
    assert values(TwoClasses(), results=(1, 2)) == dict(area=1.0)
    with pytest.raises(ValueError, match='a single class'):
        values(Accuracy())
    # Metrics that save files, count all images, or have seen none.
    saving = Sum()
    saving.out_file_path = 'predictions.pkl'
    for metric in (saving, CocoMetric()):
        assert values(metric) is None
    assert values(Sum(), results=()) is None
