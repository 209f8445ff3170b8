import pytest

from snnet_mm.stitching import Cost, Setup, StitchRow, StitchTable, TwoWaySpace

TOOL = 'analysis_tools/plot_pareto.py'
PUBLISHED = 'tests/data/ade20k_setr_deit3_s_l.json'


def test_plot_pareto_draws_results_baselines_and_others(run_here, tmp_path):
    row = StitchRow(0, 'whole', 'A', 363 * 10**9, 1, (8, 8), dict(mIoU=52.0))
    alone = StitchTable([row], 'no stitches', None, 'mIoU', dict(mIoU='higher'))
    alone.save(tmp_path / 'results.json')
    options = ('--title', 'By the authors', '--baseline', 'DeiT3-L', 362.5, 52.0)
    options += ('--baseline-results', 'anchor alone', tmp_path / 'results.json')
    options += ('--compare', 'itself', PUBLISHED, '--out', tmp_path / 'front.svg')
    run_here(TOOL, PUBLISHED, *options)
    picture = (tmp_path / 'front.svg').read_text()
    for words in ('By the authors', 'DeiT3-L', 'anchor alone', 'itself'):
        assert words in picture


def test_plot_pareto_chooses_cost_metric_and_direction(run_here, tmp_path):
    space, setup = TwoWaySpace([3, 7]), Setup('a board', 1, 'fp32')
    costs = StitchTable.counted({i: Cost(i + 1, 5) for i in (0, 1)}, (8, 8), space)
    costs.measured(setup, {0: 3.5, 1: 4.5}).save(tmp_path / 'costs.json')
    metrics = {i: dict(mIoU=1.0, kappa=float(i)) for i in (0, 1)}
    costs.with_metrics(metrics).save(tmp_path / 'stitches.json')
    picture = tmp_path / 'pareto.svg'
    args = tmp_path / 'stitches.json', '--out', picture, '--metric'
    run_here(TOOL, tmp_path / 'costs.json', *args, 'mIoU', '--cost', 'latency')
    assert 'ms at 8x8 (a board, batch 1, fp32)' in picture.read_text()
    for said, front in (('kappa', 1), ('none', 2)):
        run_here(TOOL, *args, 'kappa', '--lower-is-better', said)
        assert '<!-- kappa' in picture.read_text()
        assert f'Pareto front ({front})' in picture.read_text()
    with pytest.raises(ValueError, match="'AP' is invalid.*'kappa'"):
        run_here(TOOL, *args, 'AP')


def test_plot_pareto_draws_all_files_by_one_metric(run_here, tmp_path, monkeypatch):
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
    run_here(TOOL, a, '--compare', 'b', b, '--baseline-results', 'b alone', b)
    assert drawn['others'][0][1].scores() == {0: 50, 1: 51}
    assert [point.score for point in drawn['baselines']] == [50, 51]
