from dataclasses import replace

import pytest

from snnet_mm.stitching import Cost, CostTable, Setup, TwoWaySpace

SPACE = TwoWaySpace((3, 7))
COUNTED = CostTable(
    {s.id: Cost(100 + s.id, 10 + s.id) for s in SPACE}, (48, 64), SPACE.fingerprint
)
SETUP = Setup('cpu, 2 threads', 4, 'float32')
LATENCY = {i: 1.5 * i for i in SPACE.ids}
MEASURED = COUNTED.measured(SETUP, LATENCY, {i: 1000 * i for i in SPACE.ids})


def test_columns():
    assert COUNTED.column('flops')[7] == COUNTED[7].flops == 107
    assert MEASURED.column('latency') == LATENCY
    assert MEASURED.column('memory')[3] == MEASURED[3].memory == 3000
    assert MEASURED[7][:2] == COUNTED[7][:2] == (107, 17)
    MEASURED.check_same_model(COUNTED)
    replace(COUNTED, space=None).check_same_model(MEASURED)
    with pytest.raises(ValueError, match='stitch_table.py CONFIG --latency'):
        COUNTED.column('latency')
    only_latency = COUNTED.measured(SETUP, LATENCY)
    with pytest.raises(ValueError, match='memory .* was not measured.* --memory'):
        only_latency.column('memory')
    with pytest.raises(ValueError, match="cost='joules'; allowed: 'flops', 'params'"):
        COUNTED.column('joules')


@pytest.mark.parametrize('table', [COUNTED, MEASURED])
def test_json_gives_an_equal_table(table, tmp_path):
    path = tmp_path / 'costs.json'
    table.save(path, checks=[1, 2])
    assert CostTable.read(path) == table
    assert CostTable.read(path).fingerprint == table.fingerprint


def test_fingerprints_of_tables_in_checkpoints_stay():
    table = CostTable({0: Cost(5, 3, 2.5, 7)}, (48, 64), 'ab', SETUP)
    assert table.fingerprint == '40ab535b4bcaa48b'


@pytest.mark.parametrize(
    ('other', 'words'),
    [
        (dict(input_size=(32, 32)), 'my.json holds for images of 32x32.*at 48x64'),
        (dict(space='0'), 'my.json is of another stitching space'),
        (dict(scope='neck alone'), 'costs of neck alone, wanted .* of the whole model'),
        (dict(costs={0: Cost(100, 10)}), r'do not share stitches \[1, 2, 3, 5'),
        (
            dict(costs={**COUNTED.costs, 5: Cost(105, 16)}),
            '5 has 105 FLOPs and 16 parameters there, 105 FLOPs and 15 parameters here',
        ),
    ],
)
def test_tables_of_other_models_are_refused(other, words):
    with pytest.raises(ValueError, match=words):
        replace(COUNTED, **other).check_same_model(COUNTED, 'my.json')
