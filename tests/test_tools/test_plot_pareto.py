from dataclasses import replace

import pytest

from snnet_mm.stitching import Cost, Setup, StitchRow, StitchTable, TwoWaySpace


def alone(flops, metric, value, better):
    row = StitchRow(0, 'whole', 'A', flops, 1, (8, 8), {metric: value})
    return StitchTable([row], 'no stitches', None, metric, {metric: better})


TOOL = 'analysis_tools/plot_pareto.py'
PUBLISHED = 'tests/data/ade20k_setr_deit3_s_l.json'


def test_published_figures_and_baselines_are_drawn(run_here, tmp_path):
    alone(363 * 10**9, 'mIoU', 52.0, 'higher').save(tmp_path / 'results.json')
    options = ('--title', 'By the authors', '--baseline', 'DeiT3-L', 362.5, 52.0)
    options += ('--baseline-results', 'anchor alone', tmp_path / 'results.json')
    options += ('--compare', 'itself', PUBLISHED, '--out', tmp_path / 'front.svg')
    run_here(TOOL, PUBLISHED, *options)
    picture = (tmp_path / 'front.svg').read_text()
    for words in ('By the authors', 'DeiT3-L', 'anchor alone', 'itself'):
        assert words in picture


def test_costs_metric_and_direction_are_chosen(run_here, tmp_path):
    space, setup = TwoWaySpace([3, 7]), Setup('a board', 1, 'fp32')
    counted = {i: Cost(i + 1, 5) for i in (0, 1)}
    counted = StitchTable.counted(counted, (8, 8), space)
    counted.measured(setup, {0: 3.5, 1: 4.5}).save(tmp_path / 'costs.json')
    metrics = {i: dict(mIoU=1.0, kappa=float(i)) for i in (0, 1)}
    results = counted.with_metrics(metrics, lower_is_better=['kappa'])
    path, picture = tmp_path / 'stitches.json', tmp_path / 'pareto.svg'
    replace(results, directions=dict(mIoU='higher')).save(path)
    options = (tmp_path / 'costs.json', '--cost', 'latency')
    out = '--out', picture
    run_here(TOOL, path, *options, *out)
    assert 'ms at 8x8 (a board, batch 1, fp32)' in picture.read_text()
    with pytest.raises(ValueError, match="'AP' is invalid.*'kappa'"):
        run_here(TOOL, path, '--metric', 'AP')
    with pytest.raises(ValueError, match='expected kappa, or none .*--lower-is-better'):
        run_here(TOOL, path, '--metric', 'kappa')
    for said, front in (('kappa', 1), ('none', 2)):
        run_here(TOOL, path, '--metric', 'kappa', '--lower-is-better', said, *out)
        assert '<!-- kappa' in picture.read_text()
        assert f'Pareto front ({front})' in picture.read_text()


def test_all_files_are_drawn_by_one_metric(run_here, tmp_path, monkeypatch):
    space, drawn = TwoWaySpace([3, 7]), {}
    costs = StitchTable.counted({i: Cost(i + 1, 5) for i in (0, 1)}, (8, 8), space)
    for name, metric, more in (('a', 'mIoU', 0), ('b', 'aAcc', 10)):
        metrics = {i: dict(mIoU=40.0 + i + more, aAcc=80.0 + i + more) for i in (0, 1)}
        results = costs.with_metrics(metrics).ranked_by(metric)
        results.save(tmp_path / f'{name}.json')
    monkeypatch.setattr(
        'snnet_mm.evaluation.plot_pareto',
        lambda results, out, **more: drawn.update(more, results=results),
    )
    a, b = tmp_path / 'a.json', tmp_path / 'b.json'
    others = ('--compare', 'b', b, '--baseline-results', 'b alone', b)
    run_here(TOOL, a, *others)
    assert drawn['others'][0][1].scores() == {0: 50, 1: 51}
    assert [point.score for point in drawn['baselines']] == [50, 51]
    run_here(TOOL, a, *others, '--metric', 'aAcc')
    assert drawn['results'].scores() == {0: 80, 1: 81}
    assert [point.score for point in drawn['baselines']] == [90, 91]
    alone(1, 'RMSE', 0.5, 'lower').save(tmp_path / 'c.json')
    with pytest.raises(ValueError, match="'mIoU' is invalid"):
        run_here(TOOL, a, '--compare', 'c', tmp_path / 'c.json')
