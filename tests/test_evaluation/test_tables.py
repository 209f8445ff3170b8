import math
from dataclasses import replace

import pytest
from small_results import COSTS, RESULTS, SPACE

from snnet_mm.evaluation import report_stitches, stitch_table
from snnet_mm.stitching import StitchTable

SCOPE = 'backbone and neck alone'


def columns(table):
    return {column.header: list(column.cells) for column in table.columns}


def test_stitch_table_marks_front_beside_costs_and_metrics():
    table = stitch_table(replace(RESULTS, scope=SCOPE))
    assert table.title == f'4 stitches at 32x48 (a board, batch 2, fp32; {SCOPE})'
    assert columns(table) == {
        'id': ['0', '1', '2', '5'],
        'kind': ['anchor', 'anchor', 'FS', 'SF'],
        'route': [SPACE.describe(SPACE[i]) for i in (0, 1, 2, 5)],
        'GFLOPs': ['3.00', '30.00', '20.00', '10.00'],
        'params (M)': ['5.00'] * 4,
        'ms': ['9.00', '8.00', '4.00', '6.00'],
        'RMSE': ['0.900', '0.500', '0.800', '0.600'],
        'delta1': ['0.550', '0.750', '0.600', '0.700'],
        'Pareto': ['*', '*', '', '*'],
    }


def test_report_stitches_sorted_by_flops_and_explained(tmp_path, capsys):
    part = [replace(row, num_images=3) for row in RESULTS.rows]
    report_stitches(replace(RESULTS, rows=part, data_size=9), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ['pareto.png']
    printed = capsys.readouterr().out
    order = [printed.index(SPACE.describe(SPACE[i]) + ' ') for i in (0, 5, 2, 1)]
    assert order == sorted(order)
    assert 'metrics of 3 of 9 images' in printed
    legend = '* on the Pareto front, 3 of 4 stitches: no cheaper stitch has an equal or'
    assert legend in printed


COUNTED = 'GFLOPs', 'params (M)'
ALL_NAN = [replace(r, metrics=dict(RMSE=math.nan, delta1=1.0)) for r in RESULTS.rows]


@pytest.mark.parametrize(
    ('results', 'words'),
    [
        (replace(RESULTS, directions={}), '--lower-is-better'),
        (replace(RESULTS, rows=ALL_NAN), 'RMSE is NaN for all 4'),
    ],
)
def test_report_stitches_prints_results_without_front(tmp_path, capsys, results, words):
    report_stitches(results, tmp_path)
    assert not [*tmp_path.iterdir()]
    assert words in ' '.join(capsys.readouterr().out.split())
    assert columns(stitch_table(results))['Pareto'] == [''] * 4


def test_stitch_table_sizes_that_differ_have_column():
    small = replace(COSTS, rows=[replace(COSTS[5], input_size=(16, 24))])
    unmeasured = replace(COSTS, rows=[replace(COSTS[5], latency=None, setup=None)])
    assert [*columns(stitch_table(unmeasured))] == ['id', 'kind', 'route', *COUNTED]
    table = stitch_table(StitchTable.merge(small, RESULTS.at((32, 48))))
    assert table.title == '5 stitches of several sizes (a board, batch 2, fp32)'
    assert columns(table)['size'] == ['16x24', *['32x48'] * 4]
    assert columns(table)['RMSE'] == ['', '0.900', '0.500', '0.800', '0.600']
