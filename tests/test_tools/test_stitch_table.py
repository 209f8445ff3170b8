import re

import pytest

from snnet_mm.stitching import (
    Cost,
    StitchTable,
    TwoWaySpace,
    default_step,
    group_by_cost,
)

TOOL = 'analysis_tools/stitch_table.py'
CONFIG = 'configs/toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'


def groups_in(printed):
    """Number of stitches, share of all and rate of draws of every printed group."""
    rows = re.findall(r'(?<![\d.])(\d+) \W+([\d.]+)% \W+([\d.]+)%', printed)
    return [(int(number), float(share), float(drawn)) for number, share, drawn in rows]


def test_costs_are_printed_and_saved(run_here, tmp_path):
    options = ('--latency', '--batch', 2, '--shape', '64x96', '--rounds', 2)
    options += ('--sort', 'params', '--kind', 'FS', 'SF')
    printed = run_here(TOOL, CONFIG, *options, '--groups', 0.005, '--out', tmp_path)
    table = StitchTable.read(tmp_path / 'costs.json')
    assert len(table) == 14
    assert table.input_size == (64, 96)
    assert (table[0].setup.batch, table[0].precision) == (2, 'fp32')
    assert min(table.column('latency').values()) > 0
    params = table.column('params')
    rows = re.findall(r'^\W*(\d+) \W+([FS]+) ', printed, re.MULTILINE)
    assert {kind for _, kind in rows} == {'FS', 'SF'}
    ids = [int(i) for i, _ in rows]
    assert set(ids) == {2, 3, 4, 6, 7, 8}
    assert ids == sorted(ids, key=lambda i: (params[i], i))
    groups, found = group_by_cost(table.column('flops'), 5e6), groups_in(printed)
    assert [number for number, *_ in found] == [len(ids) for ids in groups]
    for number, share, drawn in found:
        assert share == pytest.approx(100 * number / 14, abs=0.05)
        assert drawn == pytest.approx(100 / len(groups) / number, abs=0.005)


def test_several_sizes_are_rows_of_one_file(run_here, untrained, tmp_path):
    results = StitchTable.read(untrained[1])
    options = '--shape', '64x64', '32x64', '--results', untrained[1], '--groups'
    printed = run_here(TOOL, CONFIG, *options, '--out', tmp_path)
    table = StitchTable.read(tmp_path / 'costs.json')
    small, large = table.at((32, 64)), table.at((64, 64))
    assert len(small) == len(large) == 14
    assert all(small[i].flops < large[i].flops for i in small)
    rows = re.findall(r'^\W*(\d+) \W+(?:anchor|[FS]+) ', printed, re.MULTILINE)
    assert [int(i) for i in rows] == 2 * [row.id for row in results.front()]
    flops = [large.column('flops'), small.column('flops')]
    groups = [
        g for column in flops for g in group_by_cost(column, default_step(column))
    ]
    assert [number for number, *_ in groups_in(printed)] == [len(g) for g in groups]


def test_options_are_checked_before_measuring(run_here, tmp_path, monkeypatch):
    def measure(*args, **kwargs):
        raise AssertionError('measured')

    monkeypatch.setattr('snnet_mm.costs.cost_table', measure)
    costs = StitchTable.counted({0: Cost(1, 1)}, (8, 8), TwoWaySpace((3, 7)))
    foreign = costs.with_metrics({0: dict(mIoU=1.0)})
    foreign.save(tmp_path / 'stitches.json')
    for options, words in (
        (('--sort', 'memory'), "sort='memory' is invalid"),
        (('--groups', 0), 'groups=0.0 is invalid'),
        (('--results', tmp_path / 'stitches.json'), 'of another stitching space'),
    ):
        with pytest.raises(ValueError, match=words):
            run_here(TOOL, CONFIG, *options, '--out', tmp_path)
