import json
import math
from dataclasses import replace

import numpy as np
import pytest

from snnet_mm.stitching import Cost, CostTable, Setup, StitchResults, TwoWaySpace

SPACE = TwoWaySpace((3, 7))
COSTS = CostTable({s.id: Cost(100 + s.id, 10 + s.id) for s in SPACE}, (48, 64))
MEASURED = COSTS.measured(
    Setup('cpu', 1, 'float32'), {s.id: 7.5 for s in SPACE} | {0: 10, 2: 1}
)


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


def test_nothing_is_worse_than_nan():
    results = collect(mIoU=[6, float('nan'), 4])
    assert results.scores() == {7: 6, 0: -math.inf, 2: 4}
    assert results.front() == [0, 2, 7]
    results = collect(RMSE=[float('nan'), 0.5, 0.4])
    assert results.scores() == {7: math.inf, 0: 0.5, 2: 0.4}
    assert results.front() == [0, 2]


def test_the_key_metric_ranks():
    results = collect(aAcc=[1, 2, 3], mIoU=[6, 5, 4])
    assert (results.metric, results.higher_is_better) == ('mIoU', True)
    assert [results.score(r) for r in results.stitches] == [6, 5, 4]
    assert results.front() == [0, 7]


def test_an_unknown_metric_ranks_if_there_is_no_key_metric():
    results = collect(kappa=[3, 2, 1], mAcc=[1, 2, 3])
    assert results.metric == 'kappa'
    assert results.front() == [0, 7]


def test_another_metric_may_rank():
    results = collect(**{'coco/segm_mAP': [1, 2, 3], 'coco/bbox_mAP': [3, 2, 1]})
    assert results.metric == 'coco/bbox_mAP'
    other = results.ranked_by('coco/segm_mAP')
    assert list(other.scores().values()) == [1, 2, 3]
    assert other.higher_is_better
    assert not results.ranked_by('coco/segm_mAP', False).higher_is_better
    assert (
        not collect(AbsRel=[1, 1, 1], RMSE=[2, 2, 2]).ranked_by('RMSE').higher_is_better
    )
    with pytest.raises(ValueError, match="metric 'mIoU' is not in the results"):
        results.ranked_by('mIoU')


def test_a_stitch_without_metrics_is_refused():
    found = {1: {'coco/bbox_mAP': 0.1}, 0: {}}
    with pytest.raises(ValueError, match='stitch 0 has no metrics .*StitchCocoMetric'):
        StitchResults.collect(SPACE, COSTS, found)


def test_json_gives_equal_results():
    results = collect(mIoU=np.float32([0.5, 0.25, 0.75]))
    text = json.dumps(results.to_dict())
    assert StitchResults.from_dict(json.loads(text)) == results


def test_columns_and_scores_by_stitch():
    results = collect(mIoU=[4, 5, 6])
    assert results.scores() == {7: 4, 0: 5, 2: 6}
    assert results.column('flops') == {7: 107, 0: 100, 2: 102}
    with pytest.raises(ValueError, match='hold no latency.* --latency'):
        results.column('latency')
    with pytest.raises(ValueError, match="cost 'joules' is unknown"):
        results.column('joules')


def test_the_front_knows_which_way_is_better_and_over_which_cost():
    # Lower is better; by latency 2 comes first, by FLOPs 0.
    rmse = replace(collect(mIoU=[6, 5, 4]), higher_is_better=False)
    assert rmse.front() == [0, 2]
    timed = rmse.with_costs(MEASURED)
    assert timed.column('latency') == {7: 7.5, 0: 10, 2: 1}
    assert timed.front('latency') == [2]
    assert timed.front() == rmse.front()
    assert timed.setup == MEASURED.setup
    assert timed.rank_correlation('latency') == pytest.approx(0.5)
    assert rmse.rank_correlation() == pytest.approx(0.5)


def test_measured_costs_go_into_results():
    metrics = {i: dict(mIoU=1.0) for i in (7, 0, 2)}
    at_once = StitchResults.collect(SPACE, MEASURED, metrics)
    assert at_once == collect(mIoU=[1, 1, 1]).with_costs(MEASURED)
    assert StitchResults.from_dict(json.loads(json.dumps(at_once.to_dict()))) == at_once
    with pytest.raises(ValueError, match='holds for images of 32x32'):
        at_once.with_costs(replace(MEASURED, input_size=(32, 32)))
    with pytest.raises(ValueError, match=r'another stitching space: .* \[7, 2\] '):
        at_once.with_costs(replace(MEASURED, costs={0: MEASURED[0]}))


def test_results_know_their_space(tmp_path):
    path = tmp_path / 'stitches.json'
    path.write_text(json.dumps(collect(mIoU=[4, 5, 6]).to_dict()))
    assert StitchResults.read(path, SPACE) == collect(mIoU=[4, 5, 6])
    other = TwoWaySpace((3, 8))
    with pytest.raises(
        ValueError, match='3 stitches are of another stitching'
    ) as error:
        StitchResults.read(path, other)
    assert str(path) in str(error.value)
    replace(collect(mIoU=[4, 5, 6]), space=None).check_space(other)


def test_results_of_before_there_were_fingerprints_can_be_read(tmp_path):
    data = collect(mIoU=[4, 5, 6]).to_dict()
    for key in ('space', 'setup'):
        del data[key]
    for stitch in data['stitches']:
        del stitch['latency'], stitch['memory']
    path = tmp_path / 'stitches.json'
    path.write_text(json.dumps(data))
    assert StitchResults.read(path, SPACE).scores() == {7: 4, 0: 5, 2: 6}


@pytest.mark.parametrize(
    ('content', 'words'),
    [
        (None, 'cannot be read as a file of results: No such file'),
        ('{"stitches": [', 'is damaged.*tools/test.py --stitch-id all'),
        ('{}', "is no file of results.*KeyError 'stitches'"),
        ('[1]', 'is no file of results'),
        ('{"stitches": [{"id": 0}]}', 'is no file of results.*missing'),
    ],
)
def test_bad_files_are_refused_in_words(tmp_path, content, words):
    path = tmp_path / 'stitches.json'
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=words) as error:
        StitchResults.read(path)
    assert str(path) in str(error.value)


def test_files_without_stitches_or_their_metric_are_refused(tmp_path):
    path = tmp_path / 'stitches.json'
    results = collect(mIoU=[4, 5, 6])
    path.write_text(json.dumps(replace(results, stitches=[]).to_dict()))
    with pytest.raises(ValueError, match='results of no stitch'):
        StitchResults.read(path)
    path.write_text(json.dumps(replace(results, metric='rmse').to_dict()))
    with pytest.raises(ValueError, match=r'lacks rmse of stitches \[7, 0, 2\]'):
        StitchResults.read(path)
