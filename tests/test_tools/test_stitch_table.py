import json
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


def test_costs_are_printed_and_saved(run_here, tmp_path):
    options = ('--latency', '--batch', 2, '--shape', '64x96', '--rounds', 2)
    options += ('--check', 0, 9, '--sort', 'params', '--kind', 'FS', 'SF')
    printed = run_here(TOOL, CONFIG, *options, '--out', tmp_path)
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
    checks = json.loads((tmp_path / 'costs.json').read_text())['checks']
    assert [c['stitch_id'] for c in checks] == [0, 9]
    assert checks[0]['predicted'] == table[0].latency
    assert 'slow[0:2] > fast[1:4]' in printed
    assert 'measured (ms)' in printed


def test_groups_of_the_sampler(run_here, tmp_path):
    printed = run_here(TOOL, CONFIG, '--groups', 0.005, '--out', tmp_path)
    flops = StitchTable.read(tmp_path / 'costs.json').column('flops')
    groups = group_by_cost(flops, 5e6)
    assert len(groups) > 2
    rows = re.findall(r'(\d+) \W+([\d.]+)% \W+([\d.]+)%', printed)
    assert [int(number) for number, *_ in rows] == [len(ids) for ids in groups]
    for (_, share, drawn), ids in zip(rows, groups, strict=True):
        assert float(share) == pytest.approx(100 * len(ids) / 14, abs=0.05)
        assert float(drawn) == pytest.approx(100 / len(groups) / len(ids), abs=0.005)
    assert sum(float(d) * int(n) for n, _, d in rows) == pytest.approx(100, abs=0.1)


def test_the_groups_of_the_sampler_without_a_step(run_here, tmp_path):
    printed = run_here(TOOL, CONFIG, '--groups', '--out', tmp_path)
    flops = StitchTable.read(tmp_path / 'costs.json').column('flops')
    groups = group_by_cost(flops, default_step(flops))
    rows = re.findall(r'(\d+) \W+[\d.]+% \W+[\d.]+%', printed)
    assert [int(number) for number in rows] == [len(ids) for ids in groups]
    assert len(groups) > 4


def test_stitches_on_a_front_are_shown(run_here, tmp_path):
    run_here(TOOL, CONFIG, '--out', tmp_path)
    costs = StitchTable.read(tmp_path / 'costs.json')
    scores = {0: 10, 9: 5, 2: 20, 1: 30}  # 9 costs more than 0 and is worse
    results = costs.with_metrics({i: {'mIoU': s} for i, s in scores.items()})
    results.save(tmp_path / 'stitches.json')
    options = '--results', tmp_path / 'stitches.json'
    printed = run_here(TOOL, CONFIG, *options, '--out', tmp_path)
    rows = re.findall(r'^\W*(\d+) \W+(?:anchor|[FS]+) ', printed, re.MULTILINE)
    assert rows == ['0', '2', '1']


def test_several_sizes_are_rows_of_one_file(run_here, tmp_path):
    run_here(TOOL, CONFIG, '--shape', '64x64', '32x64', '--out', tmp_path)
    table = StitchTable.read(tmp_path / 'costs.json')
    small, large = table.at((32, 64)), table.at((64, 64))
    assert len(small) == len(large) == 14
    assert all(small[i].flops < large[i].flops for i in small)


def test_options_are_checked_before_measuring(run_here, tmp_path, monkeypatch):
    def measure(*args, **kwargs):
        raise AssertionError('measured')

    monkeypatch.setattr('snnet_mm.costs.cost_table', measure)
    space = TwoWaySpace((3, 7))
    costs = StitchTable.counted({0: Cost(1, 1)}, (8, 8), space)
    foreign = costs.with_metrics({0: dict(mIoU=1.0)})
    foreign.save(tmp_path / 'stitches.json')
    for options, words in (
        (('--sort', 'latency'), "sort='latency' is invalid"),
        (('--sort', 'memory'), "sort='memory' is invalid"),
        (('--groups', 0), 'groups=0.0 is invalid'),
        (('--results', tmp_path / 'stitches.json'), 'of another stitching space'),
    ):
        with pytest.raises(ValueError, match=words):
            run_here(TOOL, CONFIG, *options, '--out', tmp_path)


def test_costs_are_saved_before_they_are_printed(run_here, tmp_path, monkeypatch):
    def report(costs):
        assert {*StitchTable.read(tmp_path / 'costs.json')} == {*costs}
        raise InterruptedError

    monkeypatch.setattr('snnet_mm.evaluation.stitch_table', report)
    with pytest.raises(InterruptedError):
        run_here(TOOL, CONFIG, '--out', tmp_path)
