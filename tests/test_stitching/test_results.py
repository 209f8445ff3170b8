import json
import math
from dataclasses import replace

import numpy as np
import pytest

from snnet_mm.stitching import (
    Cost,
    CostTable,
    Setup,
    StitchResult,
    StitchResults,
    TwoWaySpace,
)

SPACE = TwoWaySpace((3, 7))
COSTS = CostTable({s.id: Cost(100 + s.id, 10 + s.id) for s in SPACE}, (48, 64))
MEASURED = COSTS.measured(
    Setup('cpu', 1, 'float32'), {s.id: 7.5 for s in SPACE} | {0: 10, 2: 1}
)


def collect(lower_is_better=None, **by_metric):
    """Results of stitches 7, 0 and 2, from their values of every metric."""
    metrics = {
        stitch_id: {name: values[n] for name, values in by_metric.items()}
        for n, stitch_id in enumerate((7, 0, 2))
    }
    return StitchResults.collect(SPACE, COSTS, metrics, None, lower_is_better)


def test_results_join_what_is_known():
    results = collect(aAcc=[1, 2, 3], mIoU=[4, 5, 6])
    route, metrics = 'slow[0:3] > fast[1:2] > slow[5:7]', {'aAcc': 1, 'mIoU': 4}
    assert results.stitches[0] == StitchResult(7, 'SFS', route, 107, 17, metrics)
    assert [r.id for r in results.stitches] == [7, 0, 2]
    assert results.input_size == (48, 64)
    assert results.scores() == {7: 4, 0: 5, 2: 6}
    assert results.column('flops') == {7: 107, 0: 100, 2: 102}
    found = {1: {'coco/bbox_mAP': 0.1}, 0: {}}
    with pytest.raises(ValueError, match='stitch 0 has no metrics .*StitchCocoMetric'):
        StitchResults.collect(SPACE, COSTS, found)


def test_an_unknown_direction_is_asked_for_and_kept(tmp_path):
    results, path = collect(kappa=[3, 2, 1], energy=[1, 2, 3]), tmp_path / 'a.json'
    with pytest.raises(ValueError, match="metric 'kappa'.* --lower-is-better kappa"):
        results.front()
    collect(['energy'], kappa=[3, 2, 1], energy=[1, 2, 3]).save(path)
    read = StitchResults.read(path)
    assert read.higher_is_better
    assert read.front() == [0, 7]
    assert not read.ranked_by('energy').higher_is_better
    results.save(path)
    assert StitchResults.read(path, lower_is_better=['none']).front() == [0, 7]
    assert StitchResults.read(path, lower_is_better=['kappa']).front() == [0, 2]


def test_another_metric_may_rank():
    results = collect(**{'coco/segm_mAP': [1, 2, 3], 'coco/bbox_mAP': [3, 2, 1]})
    assert (results.metric, results.front()) == ('coco/bbox_mAP', [0, 7])
    other = results.ranked_by('coco/segm_mAP')
    assert list(other.scores().values()) == [1, 2, 3]
    assert not results.ranked_by(None, ['bbox_mAP']).higher_is_better
    with pytest.raises(ValueError, match="metric='mIoU'; .*'coco/segm_mAP'.*--metric"):
        results.ranked_by('mIoU')


def test_the_front_knows_which_way_is_better_and_over_which_cost():
    # Lower is better; by latency 2 comes first, by FLOPs 0.
    rmse = collect(RMSE=[6, 5, 4])
    assert rmse.front() == [0, 2]
    timed = rmse.with_costs(MEASURED)
    assert timed.column('latency') == {7: 7.5, 0: 10, 2: 1}
    assert timed.front('latency') == [2]
    assert timed.front() == rmse.front()
    assert timed.setup == MEASURED.setup
    assert timed.rank_correlation('latency') == pytest.approx(0.5)
    assert rmse.rank_correlation() == pytest.approx(0.5)


def test_measured_costs_go_into_results(tmp_path):
    metrics = {i: dict(mIoU=1.0) for i in (7, 0, 2)}
    at_once = StitchResults.collect(SPACE, MEASURED, metrics)
    assert at_once == collect(mIoU=[1, 1, 1]).with_costs(MEASURED)
    at_once.save(tmp_path / 'stitches.json')
    assert StitchResults.read(tmp_path / 'stitches.json') == at_once
    with pytest.raises(ValueError, match='holds for images of 32x32'):
        at_once.with_costs(replace(MEASURED, input_size=(32, 32)))
    with pytest.raises(ValueError, match=r'do not share stitches \[2, 7\]'):
        at_once.with_costs(replace(MEASURED, costs={0: MEASURED[0]}))


def test_results_know_their_space(tmp_path):
    path = tmp_path / 'stitches.json'
    results = collect(mIoU=np.float32([0.5, 0.25, 0.75]))
    results.save(path)
    assert StitchResults.read(path, SPACE) == results
    other = TwoWaySpace((3, 8))
    with pytest.raises(ValueError, match=f'{path}: .*3 stitches are of another'):
        StitchResults.read(path, other)
    replace(results, space=None).check_space(other)


def test_results_by_hand_and_of_an_honest_run_can_be_read():
    data = collect(RMSE=[4, math.nan, math.inf]).to_dict()
    del data['directions'], data['setup']
    for stitch in data['stitches']:
        del stitch['latency'], stitch['memory']
    results = StitchResults.from_dict(json.loads(json.dumps(data, allow_nan=False)))
    assert results.scores() == {7: 4}
    assert all(math.isnan(r.metrics['RMSE']) for r in results.stitches[1:])
    assert not results.higher_is_better
