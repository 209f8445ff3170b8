import json
import math
from dataclasses import replace

import numpy as np
import pytest
import small_results

from snnet_mm.stitching import (
    Cost,
    Key,
    Setup,
    StitchRow,
    StitchTable,
    TwoWaySpace,
    cost_column,
)

SPACE = TwoWaySpace((3, 7))
COSTS = {s.id: Cost(100 + s.id, 10 + s.id) for s in SPACE}
COUNTED = StitchTable.counted(COSTS, (48, 64), SPACE)
SETUP = Setup('cpu, 2 threads', 1, 'fp32')
LATENCY = {s.id: 7.5 for s in SPACE} | {0: 10, 2: 1}
MEASURED = COUNTED.measured(SETUP, LATENCY, {i: 1000 * i for i in SPACE.ids})


def evaluated(lower_is_better=None, costs=COUNTED, **by_metric):
    """Results of stitches 7, 0 and 2, from their values of every metric."""
    metrics = {
        stitch_id: {name: values[n] for name, values in by_metric.items()}
        for n, stitch_id in enumerate((7, 0, 2))
    }
    return costs.with_metrics(metrics, None, lower_is_better)


def ids(rows):
    return [row.id for row in rows]


def test_stitch_table_columns_of_costs():
    assert [*COUNTED] == [*SPACE.ids]
    assert COUNTED.column('flops')[7] == COUNTED[7].flops == 107
    assert MEASURED.column('latency') == LATENCY
    assert MEASURED.column('memory')[3] == MEASURED[3].memory == 3000
    for name, words in dict(memory='CONFIG --memory', joules="cost='joules'").items():
        with pytest.raises(ValueError, match=words):
            COUNTED.column(name)


def test_stitch_table_with_metrics_keeps_costs_and_routes():
    table = evaluated(aAcc=[1, 2, 3], mIoU=np.float32([4, 5, 6]))
    route, metrics = 'slow[0:3] > fast[1:2] > slow[5:7]', {'aAcc': 1, 'mIoU': 4}
    assert table.rows[0] == StitchRow(7, 'SFS', route, 107, 17, (48, 64), metrics)
    assert table.scores() == {7: 4, 0: 5, 2: 6}
    assert table.input_size == (48, 64)
    with pytest.raises(ValueError, match='stitch 0, .*: test_evaluator'):
        COUNTED.with_metrics({1: {'coco/bbox_mAP': 0.1}, 0: {}})


@pytest.mark.parametrize(
    'table',
    [
        COUNTED,
        replace(MEASURED, scope='backbone and neck alone'),
        evaluated(mIoU=np.float32([1, 2, 3])),
        replace(
            evaluated(costs=MEASURED, a=[1, 2, 3]), data_size=9, digest='0'
        ).ranked_by(lower_is_better=['a']),
        StitchTable.merge(COUNTED, replace(small_results.RESULTS, space=None)),
    ],
    ids=['counted', 'measured', 'evaluated', 'all', 'two sizes'],
)
def test_stitch_table_files_are_read_as_written(table, tmp_path):
    path = tmp_path / 'a.json'
    table.save(path)
    assert StitchTable.read(path, SPACE) == table
    with pytest.raises(ValueError, match=f'{path} .*backbone.stitch_ids'):
        StitchTable.read(path, TwoWaySpace((3, 8)))
    replace(table, space=None).check_space(TwoWaySpace((3, 8)))


def test_stitch_table_files_hold_shared_values_once():
    data = MEASURED.to_dict()
    assert data['input_size'] == (48, 64)
    assert data['setup']['device'] == 'cpu, 2 threads'
    assert {*data['stitches'][0]} == {
        'id', 'kind', 'route', 'flops', 'params', 'latency', 'memory',
    }  # fmt: skip


def test_stitch_table_undefined_metrics_are_null():
    data = evaluated(RMSE=[4, math.nan, math.inf]).to_dict()
    del data['directions']
    for row in data['stitches']:
        row |= dict(latency=None, memory=None)  # as in files of earlier versions
    table = StitchTable.from_dict(json.loads(json.dumps(data, allow_nan=False)))
    assert table.scores() == {7: 4}
    assert all(math.isnan(row.metrics['RMSE']) for row in table.rows[1:])
    assert not table.higher_is_better


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (dict(stitches=[]), 'ids of stitches'),
        (dict(metric='aAcc'), "metric is 'aAcc'"),
        (dict(id=0), 'ids of stitches'),
        (dict(input_size=48), ".*'int'"),
        (dict(name='x'), '.*name'),
        (dict(metrics=dict(mAcc=1)), 'metrics is'),
    ],
)
def test_stitch_table_read_damaged_file_raises(change, words, tmp_path):
    path, data = tmp_path / 'stitches.json', evaluated(mIoU=[1, 2, 3]).to_dict()
    part = data if change.keys() & data.keys() - {'input_size'} else data['stitches'][0]
    part |= change
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=f'{path} .*: {words}'):
        StitchTable.read(path)


def test_stitch_table_ranked_by_metrics_and_directions(tmp_path):
    table = evaluated(**{'coco/segm_mAP': [1, 2, 3], 'coco/bbox_mAP': [3, 2, 1]})
    assert (table.metric, ids(table.front())) == ('coco/bbox_mAP', [0, 7])
    assert [*table.ranked_by('coco/segm_mAP').scores().values()] == [1, 2, 3]
    assert not table.ranked_by(None, ['bbox_mAP']).higher_is_better
    with pytest.raises(ValueError, match="metric='mIoU' is .*--metric"):
        table.ranked_by('mIoU')
    unknown, path = evaluated(kappa=[3, 2, 1], energy=[1, 2, 3]), tmp_path / 'a.json'
    with pytest.raises(ValueError, match='--lower-is-better'):
        unknown.front()
    unknown.save(path)
    for said, front in (('none', [0, 7]), ('kappa', [0, 2])):
        assert ids(StitchTable.read(path).ranked_by(None, [said]).front()) == front
    evaluated(['energy'], kappa=[3, 2, 1], energy=[1, 2, 3]).save(path)
    assert ids(StitchTable.read(path).front()) == [0, 7]
    assert not StitchTable.read(path).ranked_by('energy').higher_is_better


def test_stitch_table_merge_joins_equal_keys():
    metrics = evaluated(mIoU=[1, 2, 3])
    for tables in ((MEASURED, metrics), (metrics, MEASURED)):
        merged = StitchTable.merge(*tables)
        assert len(merged) == len(SPACE)
        assert merged.scores() == {7: 1, 0: 2, 2: 3}
        assert (merged[7].latency, merged[7].setup) == (7.5, SETUP)
        assert (merged[3].latency, merged[3].metrics) == (7.5, {})
    later = evaluated(mIoU=[9, 9, 9])
    assert StitchTable.merge(metrics, later).scores() == {7: 9, 0: 9, 2: 9}


@pytest.mark.parametrize(
    ('other', 'words'),
    [
        (replace(COUNTED, space='0'), 'one stitching space'),
        (replace(COUNTED, scope='neck alone'), 'neck alone.*--results'),
        (
            StitchTable.counted({5: Cost(105, 16)}, (48, 64), SPACE),
            r'\[15, 16\] .* stitch 5 .*--results',
        ),
        (evaluated(aAcc=[1, 2, 3]), 'ranked by one metric'),
        (replace(evaluated(mIoU=[1, 2, 3]), data_size=9), 'on the same images'),
    ],
)
def test_stitch_table_merge_of_other_models_raises(other, words):
    table = StitchTable.merge(COUNTED, evaluated(mIoU=[1, 2, 3]))
    with pytest.raises(ValueError, match=words):
        StitchTable.merge(table, other)


def test_stitch_table_fronts_over_costs_and_sizes():
    # RMSE 0.9, 0.5, 0.8, 0.6 at 3, 30, 20, 10 GFLOPs and 9, 8, 4, 6 ms.
    large = small_results.RESULTS
    assert ids(large.front()) == [0, 5, 1]
    assert ids(large.front('latency')) == [2, 5, 1]
    # Small images are a bit worse.
    rows = [
        replace(
            row,
            flops=row.flops // 4,
            metrics=dict(row.metrics, RMSE=row.metrics['RMSE'] + 0.15),
            input_size=(16, 24),
        )
        for row in large.rows
    ]
    small = replace(large, rows=rows)
    both = StitchTable.merge(small, large)
    assert (len(both), both.input_size) == (8, (32, 48))
    assert both.at((16, 24)) == both.for_size((16, 24)) == small
    assert both.for_size((8, 8)) == both
    assert [(row.id, row.input_size) for row in both.front()] == [
        *((i, (16, 24)) for i in (0, 5, 1)),
        *((i, (32, 48)) for i in (5, 1)),
    ]
    with pytest.raises(ValueError, match='a stitches.json .*--results'):
        small_results.COSTS.front()
    column = cost_column(both.rows, 'flops')
    assert column[Key(2, (16, 24), 'fp32')] == 5 * 10**9
    assert column[Key(2, (32, 48), 'fp32')] == 20 * 10**9
