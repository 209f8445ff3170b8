import json

import pytest

TOOL = 'analysis_tools/plot_pareto.py'
PUBLISHED = 'tests/data/ade20k_setr_deit3_s_l.json'


def test_published_figures_are_drawn(run_here, tmp_path):
    options = ('--title', 'By the authors', '--baseline', 'DeiT3-L alone', 362.5, 52.0)
    options += ('--compare', 'itself', PUBLISHED, '--out', tmp_path / 'front')
    run_here(TOOL, PUBLISHED, *options)
    assert (tmp_path / 'front.png').read_bytes().startswith(b'\x89PNG')
    picture = (tmp_path / 'front.svg').read_text()
    assert 'DeiT3-L alone' in picture
    assert 'By the authors' in picture


@pytest.fixture
def results(tmp_path):
    """Writes results of two stitches."""

    def results(*metrics):
        stitch = dict(kind='FS', route='fast[0:3]', params=5)
        results = dict(metric='mIoU', space='s', input_size=[8, 8])
        results['stitches'] = [
            dict(stitch, id=i, flops=i + 1, metrics=m) for i, m in enumerate(metrics)
        ]
        path = tmp_path / 'stitches.json'
        path.write_text(json.dumps(results))
        return path

    return results


def test_a_damaged_file_ends_in_words(run_here, tmp_path):
    path = tmp_path / 'stitches.json'
    path.write_text('{"stitches"')
    with pytest.raises(ValueError, match='is damaged'):
        run_here(TOOL, path, '--out', tmp_path / 'front')
    assert not list(tmp_path.glob('front*'))


def test_results_are_drawn_over_measured_costs(run_here, results, tmp_path):
    costs = dict(input_size=[8, 8], space='s')
    costs['setup'] = dict(device='a board', batch=1, dtype='float32')
    costs['stitches'] = [dict(id=0, flops=1, params=5, latency=3.5, memory=None)]
    (tmp_path / 'costs.json').write_text(json.dumps(costs))
    options = ('--cost', 'latency', '--costs', tmp_path / 'costs.json')
    run_here(TOOL, results(dict(mIoU=1.0)), *options)
    picture = (tmp_path / 'pareto.svg').read_text()
    assert 'ms at 8x8 (a board, batch 1, float32)' in picture


def test_the_metric_and_its_direction_are_chosen(run_here, results, tmp_path):
    path = results(dict(mIoU=1, kappa=0), dict(mIoU=1, kappa=1))
    with pytest.raises(ValueError, match="'AP'; allowed: .*'kappa'"):
        run_here(TOOL, path, '--metric', 'AP')
    with pytest.raises(ValueError, match="'kappa'.*--lower-is-better kappa"):
        run_here(TOOL, path, '--metric', 'kappa')
    for said, front in (('kappa', 1), ('none', 2)):
        run_here(TOOL, path, '--metric', 'kappa', '--lower-is-better', said)
        picture = (tmp_path / 'pareto.svg').read_text()
        assert '<!-- kappa' in picture
        assert f'Pareto front ({front})' in picture
