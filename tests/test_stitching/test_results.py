import json

import numpy as np
import pytest

from snnet_mm.stitching import Cost, CostTable, StitchResults, TwoWaySpace

SPACE = TwoWaySpace((3, 7))
COSTS = CostTable({s.id: Cost(100 + s.id, 10 + s.id) for s in SPACE}, (48, 64))


def collect(**by_metric):
    """Results of stitches 7, 0 and 2, from their values of every metric."""
    metrics = {
        stitch_id: {name: values[n] for name, values in by_metric.items()}
        for n, stitch_id in enumerate((7, 0, 2))
    }
    return StitchResults.collect(SPACE, COSTS, metrics)


def test_results_join_what_is_known():
    results = collect(aAcc=[1, 2, 3], mIoU=[4, 5, 6])
    first = results.stitches[0]
    assert (first.id, first.kind, first.flops, first.params) == (7, 'SFS', 107, 17)
    assert first.route == 'slow[0:3] > fast[1:2] > slow[5:7]'
    assert first.metrics == {'aAcc': 1, 'mIoU': 4}
    assert [r.id for r in results.stitches] == [7, 0, 2]
    assert results.input_size == (48, 64)


def test_the_key_metric_ranks():
    results = collect(aAcc=[1, 2, 3], mIoU=[6, 5, 4])
    assert (results.metric, results.higher_is_better) == ('mIoU', True)
    assert [results.score(r) for r in results.stitches] == [6, 5, 4]
    assert results.front() == [0, 7]


def test_an_unknown_metric_ranks_if_there_is_no_key_metric():
    results = collect(kappa=[3, 2, 1], mAcc=[1, 2, 3])
    assert results.metric == 'kappa'
    assert results.front() == [0, 7]


def test_json_gives_equal_results():
    results = collect(mIoU=np.float32([0.5, 0.25, 0.75]))
    text = json.dumps(results.to_dict())
    assert StitchResults.from_dict(json.loads(text)) == results


def test_columns_of_the_cost_table():
    assert COSTS.column('flops')[7] == COSTS[7].flops == 107
    assert COSTS.column('params')[7] == COSTS[7].params == 17
    assert list(COSTS) == list(SPACE.ids)
    assert len(COSTS) == 8
    with pytest.raises(ValueError, match="cost 'latency' is unknown"):
        COSTS.column('latency')
