import json
import re

import pytest

from snnet_mm.stitching import StitchTable, group_by_cost

TOOL = 'analysis_tools/stitch_table.py'
CONFIG = 'configs/toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'


def test_stitch_table_prints_and_saves_costs(run_here, tmp_path):
    options = ('--latency', '--batch', 2, '--shape', '64x96', '--rounds', 2)
    options += ('--check', 0, 9, '--sort', 'params', '--kind', 'FS', 'SF')
    printed = run_here(TOOL, CONFIG, *options, '--groups', 0.005, '--out', tmp_path)
    table = StitchTable.read(tmp_path / 'costs.json')
    assert len(table) == 14
    assert table.input_size == (64, 96)
    assert (table[0].setup.batch, table[0].precision) == (2, 'fp32')
    assert min(table.column('latency').values()) > 0
    params = table.column('params')
    rows = re.findall(r'^\W*(\d+) \W+(FS|SF) ', printed, re.MULTILINE)
    ids = [int(i) for i, _ in rows]
    assert set(ids) == {2, 3, 4, 6, 7, 8}
    assert ids == sorted(ids, key=lambda i: (params[i], i))
    checks = json.loads((tmp_path / 'costs.json').read_text())['checks']
    assert [c['stitch_id'] for c in checks] == [0, 9]
    assert checks[0]['predicted'] == table[0].latency
    assert 'slow[0:2] > fast[1:4]' in printed
    # Number of stitches, share of all and rate of draws of every group.
    groups = group_by_cost(table.column('flops'), 5e6)
    found = re.findall(r'(?<![\d.])(\d+) \W+([\d.]+)% \W+([\d.]+)%', printed)
    for (number, share, drawn), ids in zip(found, groups, strict=True):
        assert int(number) == len(ids)
        assert float(share) == pytest.approx(100 * len(ids) / 14, abs=0.05)
        rate = 100 / len(groups) / len(ids)
        assert float(drawn) == pytest.approx(rate, abs=0.005)


def test_stitch_table_several_sizes_are_rows_of_one_file(run_here, narrow, tmp_path):
    results = narrow / 'stitches.json'
    options = '--shape', '64x64', '32x64', '--results', results, '--out', tmp_path
    printed = run_here(TOOL, narrow / 'config.py', *options)
    table = StitchTable.read(tmp_path / 'costs.json')
    small, large = table.at((32, 64)), table.at((64, 64))
    assert all(small[i].flops < large[i].flops for i in small)
    rows = re.findall(r'^\W*(\d+) \W+(?:anchor|[FS]+) ', printed, re.MULTILINE)
    front = [row.id for row in StitchTable.read(results).front()]
    assert [int(i) for i in rows] == 2 * front


@pytest.mark.parametrize(
    'options', [('--sort', 'memory'), ('--batch', 0), ('--kind', 'SFSF')]
)
def test_stitch_table_wrong_options_are_refused(run_here, tmp_path, options):
    with pytest.raises(ValueError, match=f'{options[0][2:]}='):
        run_here(TOOL, CONFIG, *options, '--out', tmp_path)
