from dataclasses import replace

import pytest

from snnet_mm.stitching import (
    Cost,
    CostTable,
    Setup,
    StitchResult,
    StitchResults,
    TwoWaySpace,
)

TOOL = 'analysis_tools/plot_pareto.py'
PUBLISHED = 'tests/data/ade20k_setr_deit3_s_l.json'


def test_published_figures_are_drawn(run_here, tmp_path):
    options = ('--title', 'By the authors', '--baseline', 'DeiT3-L alone', 362.5, 52.0)
    options += ('--compare', 'itself', PUBLISHED, '--out', tmp_path / 'front.svg')
    run_here(TOOL, PUBLISHED, *options)
    picture = (tmp_path / 'front.svg').read_text()
    assert 'DeiT3-L alone' in picture
    assert 'By the authors' in picture


def test_an_anchor_alone_is_a_point(run_here, tmp_path):
    row = StitchResult(0, 'whole', 'A', 363 * 10**9, 1, dict(mIoU=52.0))
    alone = StitchResults([row], 'mIoU', dict(mIoU='higher'), (8, 8), 'no stitches')
    alone.save(tmp_path / 'results.json')
    options = ('--baseline-results', 'anchor alone', tmp_path / 'results.json')
    run_here(TOOL, PUBLISHED, *options, '--out', tmp_path / 'front.svg')
    assert 'anchor alone' in (tmp_path / 'front.svg').read_text()


def test_costs_metric_and_direction_are_chosen(run_here, tmp_path):
    space, setup = TwoWaySpace([3, 7]), Setup('a board', 1, 'float32')
    costs = {i: Cost(i + 1, 5, latency=3.5 + i) for i in (0, 1)}
    costs = CostTable(costs, (8, 8), space.fingerprint, setup)
    costs.save(tmp_path / 'costs.json')
    metrics = {i: dict(mIoU=1.0, kappa=float(i)) for i in (0, 1)}
    results = StitchResults.collect(space, costs, metrics, lower_is_better=['kappa'])
    path, picture = tmp_path / 'stitches.json', tmp_path / 'pareto.svg'
    replace(results, directions=dict(mIoU='higher')).save(path)
    options = ('--cost', 'latency', '--costs', tmp_path / 'costs.json')
    out = '--out', picture
    run_here(TOOL, path, *options, *out)
    assert 'ms at 8x8 (a board, batch 1, float32)' in picture.read_text()
    with pytest.raises(ValueError, match="'AP'; allowed: .*'kappa'"):
        run_here(TOOL, path, '--metric', 'AP')
    with pytest.raises(ValueError, match="'kappa'.*--lower-is-better kappa"):
        run_here(TOOL, path, '--metric', 'kappa')
    for said, front in (('kappa', 1), ('none', 2)):
        run_here(TOOL, path, '--metric', 'kappa', '--lower-is-better', said, *out)
        assert '<!-- kappa' in picture.read_text()
        assert f'Pareto front ({front})' in picture.read_text()
