"""The table of an elastic network."""

import pytest

from snnet_mm.elastic.report import elastic_table
from snnet_mm.stitching import Cost, CostTable, Setup, StitchResults, TwoWaySpace


@pytest.mark.parametrize(
    'metric, scores, heading, cells',
    [
        ('mIoU', (40, 30), "of network's", ['100.0%', '75.0%']),
        ('coco/bbox_mAP', (0.312, 0.28), "of network's", ['100.0%', '89.7%']),
        ('RMSE', (4, 5), 'more error', ['', '+25.0%']),
        ('RMSE', (0, 5), 'more error', ['', '']),
    ],
)
def test_scores_are_compared_with_the_network(metric, scores, heading, cells):
    costs = CostTable({0: Cost(200, 20), 1: Cost(100, 10)}, (48, 64))
    costs = costs.measured(Setup('cpu', 1, 'float32'), {0: 8.0, 1: 4.0})
    metrics = {i: {metric: score} for i, score in enumerate(scores)}
    results = StitchResults.collect(TwoWaySpace((3, 7)), costs, metrics)
    table = elastic_table(results)
    assert table.columns[-1].header == heading
    assert list(table.columns[-1].cells) == cells
    assert list(table.columns[-2].cells) == [f'{s:.4g}' for s in scores]
    assert table.columns[-2].header == metric.split('/')[-1]
    assert list(table.columns[-3].cells) == ['100%', '50%']
