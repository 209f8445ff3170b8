import pytest

from snnet_mm.stitching import Cost, Setup, StitchTable, TwoWaySpace

TOOL = 'analysis_tools/plot_pareto.py'


@pytest.fixture
def files(tmp_path):
    """Costs with milliseconds, and results of three models, ranked by two metrics."""
    space, setup = TwoWaySpace([3, 7]), Setup('a board', 1, 'fp32')
    costs = StitchTable.counted({i: Cost(i + 1, 5) for i in (0, 1)}, (8, 8), space)
    measured = costs.measured(setup, {0: 3.5, 1: 4.5})
    measured.save(tmp_path / 'costs.json')
    for name, metric, more in (('a', 'mIoU', 0), ('b', 'aAcc', 10)):
        metrics = {i: dict(mIoU=40.0 + i + more, aAcc=80.0 + i + more) for i in (0, 1)}
        results = measured.with_metrics(metrics).ranked_by(metric)
        results.save(tmp_path / f'{name}.json')
    metrics = {i: dict(mIoU=1.0, kappa=float(i)) for i in (0, 1)}
    costs.with_metrics(metrics).save(tmp_path / 'stitches.json')
    return {path.stem: path for path in tmp_path.iterdir()}


def test_plot_pareto_draws_all_files_by_one_metric(run_here, files, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        'snnet_mm.evaluation.plot_pareto',
        lambda results, out, **more: drawn.update(more, results=results, out=out),
    )
    options = '--compare', 'b', files['b'], '--baseline-results', 'b alone', files['b']
    options += ('--baseline', 'DeiT3-L', 362.5, 52, '--title', 'By us')
    run_here(TOOL, files['a'], *options)
    assert drawn['results'] == StitchTable.read(files['a'])
    assert drawn['out'] == files['a'].with_name('pareto.png')
    assert drawn['title'] == 'By us'
    ((label, other),) = drawn['others']
    assert (label, other.scores()) == ('b', {0: 50, 1: 51})
    assert [tuple(point) for point in drawn['baselines']] == [
        ('DeiT3-L', 362.5e9, 52),
        ('b alone', 1, 50),
        ('b alone', 2, 51),
    ]


def test_plot_pareto_chooses_cost_metric_and_direction(run_here, files, tmp_path):
    picture = tmp_path / 'pareto.svg'
    args = files['stitches'], '--out', picture, '--metric'
    run_here(TOOL, files['costs'], *args, 'mIoU', '--cost', 'latency')
    assert 'ms at 8x8 (a board, batch 1, fp32)' in picture.read_text()
    # The front of one point has no line, and no entry in the legend.
    for said, drawn in (('kappa', False), ('none', True)):
        run_here(TOOL, *args, 'kappa', '--lower-is-better', said)
        assert '<!-- kappa' in picture.read_text()
        assert ('Pareto front (2)' in picture.read_text()) is drawn
        assert ('Pareto front' in picture.read_text()) is drawn
    for wrong in (['--metric', 'AP'], ['--baseline', 'a', 'x', 1]):
        with pytest.raises(ValueError, match=f'{wrong[0][2:]}='):
            run_here(TOOL, files['stitches'], *wrong)


@pytest.mark.parametrize(
    ('cost', 'factor'), [('flops', 1e9), ('params', 1e6), ('latency', 1)]
)
@pytest.mark.parametrize('head', ['', 'GFLOPs,mIoU\n', '\ufeffcost,metric\r\n'])
def test_plot_pareto_compares_points_of_others(
    run_here, files, monkeypatch, tmp_path, cost, factor, head
):
    drawn = {}
    monkeypatch.setattr(
        'snnet_mm.evaluation.plot_pareto',
        lambda results, out, **more: drawn.update(more),
    )
    path = tmp_path / 'points.csv'
    path.write_text(f'{head}2.5,40\n 1.5, 41.5\n\n3,42\n', encoding='utf-8')
    run_here(TOOL, files['a'], '--cost', cost, '--compare', 'other', path)
    ((label, other),) = drawn['others']
    assert label == 'other'
    found = [(getattr(row, cost), other.score(row)) for row in other.front(cost)]
    assert found == [(1.5 * factor, 41.5), (3 * factor, 42)]


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('cost,metric\n\n1,2\n3;4\n', "GFLOPs and a mIoU per line.*line 4 is '3;4'"),
        ('1,2,3\n', "line 1 is '1,2,3'"),
        ('cost,metric\n', 'lines of cost,metric'),
    ],
)
def test_plot_pareto_other_points_are_named(run_here, files, tmp_path, text, message):
    (tmp_path / 'points.csv').write_text(text)
    with pytest.raises(ValueError, match=f'points.csv.*{message}'):
        run_here(TOOL, files['a'], '--compare', 'x', tmp_path / 'points.csv')
