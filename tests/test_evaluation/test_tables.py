import json
import math
from dataclasses import replace

import pytest

from snnet_mm.evaluation import cost_report, report_stitches, stitch_table
from snnet_mm.stitching import (
    Cost,
    CostTable,
    Setup,
    StitchResult,
    StitchResults,
    TwoWaySpace,
)


@pytest.fixture
def results():
    def stitch(stitch_id, kind, gflops, miou):
        costs = int(gflops * 1e9), 10**6 * stitch_id
        metrics = dict(aAcc=2 * miou, mIoU=miou)
        return StitchResult(stitch_id, kind, f'route {stitch_id}', *costs, metrics)

    stitches = [
        stitch(1, 'anchor', 30, 40.0),
        stitch(0, 'anchor', 3, 20.0),
        stitch(7, 'FS', 20, 33.0),
        stitch(8, 'SF', 10, 35.0),
    ]
    directions = dict(mIoU='higher', aAcc='higher')
    return StitchResults(stitches, 'mIoU', directions, (32, 48), 'space')


def cells(table, column):
    return list(table.columns[column].cells)


def test_table_is_sorted_by_cost_and_marks_the_front(results):
    table = stitch_table(results)
    assert cells(table, 0) == ['0', '8', '7', '1']
    assert cells(table, 2) == ['route 0', 'route 8', 'route 7', 'route 1']
    assert cells(table, 3) == ['3.00', '10.00', '20.00', '30.00']
    assert cells(table, 4) == ['0.00', '8.00', '7.00', '1.00']
    assert cells(table, 6) == ['20.00', '35.00', '33.00', '40.00']
    assert cells(table, 7) == ['*', '*', '', '*']


def test_detection_metrics_have_short_names_and_fit(results):
    metrics = {f'coco/bbox_mAP{end}': 0.1 for end in ('', '_50', '_s', '_m', '_l')}
    stitches = [replace(r, metrics=metrics) for r in results.stitches]
    table = stitch_table(replace(results, stitches=stitches, metric='coco/bbox_mAP'))
    headers = [column.header for column in table.columns]
    assert headers[5:] == ['bbox_mAP', 'bbox_mAP_50', 'Pareto']
    assert cells(table, 5) == ['0.100'] * 4


def test_report_can_be_read_back(results, tmp_path, capsys):
    report_stitches(results, tmp_path)
    written = json.loads((tmp_path / 'stitches.json').read_text())
    assert StitchResults.from_dict(written) == results
    printed = capsys.readouterr().out
    assert 'correlation of mIoU and FLOPs: 0.80; 3 of 4 stitches' in printed


def nothing_known(results):
    return replace(results, directions={})


def all_nan(results):
    metrics = dict(aAcc=1.0, mIoU=math.nan)
    stitches = [replace(r, metrics=metrics) for r in results.stitches]
    return replace(results, stitches=stitches)


@pytest.mark.parametrize(
    ('change', 'words'),
    [(nothing_known, '--lower-is-better'), (all_nan, 'mIoU is NaN for all 4')],
)
def test_an_evaluation_without_a_front_is_not_lost(
    results, tmp_path, capsys, change, words
):
    results = change(results)
    report_stitches(results, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ['stitches.json']
    read = StitchResults.read(tmp_path / 'stitches.json')
    assert [r.id for r in read.stitches] == [1, 0, 7, 8]
    assert words in ' '.join(capsys.readouterr().out.split())
    assert cells(stitch_table(results), 7) == [''] * 4


def test_rank_correlation(results):
    # Ranks by FLOPs 3 0 2 1, by mIoU 3 0 1 2: 1 - 6 * 2 / (4 * 15).
    assert results.rank_correlation() == pytest.approx(0.8)
    alone = replace(results, stitches=results.stitches[:1])
    assert math.isnan(alone.rank_correlation())


SPACE = TwoWaySpace((3, 7))
COUNTED = CostTable({s.id: Cost(10**9 * s.id, 2 * 10**6) for s in SPACE}, (32, 48))
MEASURED = COUNTED.measured(
    Setup('a board', 2, 'float32'),
    {i: i / 4 for i in COUNTED},
    dict.fromkeys(COUNTED, 7),
)


def columns(table):
    return {column.header: list(column.cells) for column in table.columns}


def test_only_known_costs_are_shown():
    table = cost_report(SPACE, COUNTED, [7, 0])
    assert columns(table) == {
        'id': ['7', '0'],
        'kind': ['SFS', 'anchor'],
        'route': ['slow[0:3] > fast[1:2] > slow[5:7]', 'fast[0:3]'],
        'GFLOPs': ['7.00', '0.00'],
        'params (M)': ['2.00', '2.00'],
    }
    features = replace(MEASURED, scope='backbone and neck alone')
    measured = cost_report(SPACE, features, [7])
    assert columns(measured)['ms'] == ['1.75']
    where = '(a board, batch 2, float32; backbone and neck alone)'
    assert measured.title == f'1 stitches at 32x48 {where}'
    metrics = {7: dict(mIoU=1.0)}
    results = StitchResults.collect(SPACE, features, metrics)
    assert StitchResults.from_dict(results.to_dict()) == results
    assert '(costs: backbone and neck alone)' in stitch_table(results).title
