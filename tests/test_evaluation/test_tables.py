import math
from dataclasses import replace

import pytest
from small_results import COSTS, RESULTS, SPACE

from snnet_mm.evaluation import cost_report, report_stitches, stitch_table
from snnet_mm.stitching import Cost, StitchResults

SCOPE = 'backbone and neck alone'


def columns(table):
    return {column.header: list(column.cells) for column in table.columns}


def test_results_are_sorted_by_cost_with_the_front_marked():
    table = stitch_table(replace(RESULTS, scope=SCOPE))
    assert table.title == f'Stitches at 32x48: 4 (costs: {SCOPE})'
    assert columns(table) == {
        'id': ['0', '5', '2', '1'],
        'kind': ['anchor', 'SF', 'FS', 'anchor'],
        'route': [SPACE.describe(SPACE[i]) for i in (0, 5, 2, 1)],
        'GFLOPs': ['3.00', '10.00', '20.00', '30.00'],
        'params (M)': ['5.00'] * 4,
        'RMSE': ['0.900', '0.600', '0.800', '0.500'],
        'delta1': ['0.550', '0.700', '0.600', '0.750'],
        'Pareto': ['*', '*', '', '*'],
    }


def test_report_can_be_read_back(tmp_path, capsys):
    report_stitches(RESULTS, tmp_path)
    assert StitchResults.read(tmp_path / 'stitches.json') == RESULTS
    # Ranks by FLOPs 0 3 2 1, by RMSE 3 0 2 1: 1 - 6 * 18 / (4 * 15).
    printed = capsys.readouterr().out
    for words in (
        'correlation of RMSE and FLOPs: -0.80.',
        '* on the Pareto front, 3 of 4 stitches: none that costs as little has less RM',
    ):
        assert words in printed


def all_nan(results):
    metrics = dict(RMSE=math.nan, delta1=1.0)
    stitches = [replace(r, metrics=metrics) for r in results.stitches]
    return replace(results, stitches=stitches)


@pytest.mark.parametrize(
    ('results', 'words'),
    [
        (replace(RESULTS, directions={}), '--lower-is-better'),
        (all_nan(RESULTS), 'RMSE is NaN for all 4'),
    ],
    ids=['no direction', 'all NaN'],
)
def test_an_evaluation_without_a_front_is_not_lost(tmp_path, capsys, results, words):
    report_stitches(results, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ['stitches.json']
    read = StitchResults.read(tmp_path / 'stitches.json')
    assert [r.id for r in read.stitches] == [r.id for r in results.stitches]
    assert words in ' '.join(capsys.readouterr().out.split())
    assert columns(stitch_table(results))['Pareto'] == [''] * 4


def test_only_known_costs_are_shown():
    counted = {i: Cost(*cost[:2]) for i, cost in COSTS.costs.items()}
    table = cost_report(SPACE, replace(COSTS, costs=counted, setup=None), [5, 0])
    assert table.title == '2 stitches at 32x48'
    expected = {
        'id': ['5', '0'],
        'kind': ['SF', 'anchor'],
        'route': ['slow[0:3] > fast[1:3]', 'fast[0:3]'],
        'GFLOPs': ['10.00', '3.00'],
        'params (M)': ['5.00', '5.00'],
    }
    assert columns(table) == expected
    measured = cost_report(SPACE, replace(COSTS, scope=SCOPE), [5, 0])
    assert columns(measured) == expected | dict(ms=['6.00', '9.00'])
    where = f'(a board, batch 2, float32; {SCOPE})'
    assert measured.title == f'2 stitches at 32x48 {where}'
    results = StitchResults.collect(SPACE, replace(COSTS, scope=SCOPE), {5: dict(a=1)})
    assert StitchResults.from_dict(results.to_dict()) == results
    assert results.scope == SCOPE
