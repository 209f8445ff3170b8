import csv

from snnet_mm.evaluation import cost_report, write_cost_csv
from snnet_mm.stitching import Cost, CostTable, Setup, TwoWaySpace

SPACE = TwoWaySpace((3, 7))
COUNTED = CostTable({s.id: Cost(10**9 * s.id, 2 * 10**6) for s in SPACE}, (32, 48))
MEASURED = COUNTED.measured(
    Setup('a board', 2, 'float32'),
    {i: i / 4 for i in COUNTED},
    dict.fromkeys(COUNTED, 7),
)


def cells(table):
    return {column.header: list(column.cells) for column in table.columns}


def test_only_known_costs_are_shown():
    table = cost_report(SPACE, COUNTED, [7, 0])
    assert cells(table) == {
        'id': ['7', '0'],
        'kind': ['SFS', 'anchor'],
        'route': ['slow[0:3] > fast[1:2] > slow[5:7]', 'fast[0:3]'],
        'GFLOPs': ['7.00', '0.00'],
        'params (M)': ['2.00', '2.00'],
    }
    measured = cost_report(SPACE, MEASURED, [7])
    assert cells(measured)['ms'] == ['1.75']
    assert 'a board, batch 2, float32' in measured.title


def test_csv_has_the_units_of_the_table(tmp_path):
    path = tmp_path / 'costs.csv'
    write_cost_csv(SPACE, MEASURED, [7, 2], path)
    with path.open(newline='') as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == dict(
        id='7',
        kind='SFS',
        route='slow[0:3] > fast[1:2] > slow[5:7]',
        flops='7000000000',
        params='2000000',
        latency='1.75',
        memory='7',
    )
    assert rows[1]['id'] == '2'
