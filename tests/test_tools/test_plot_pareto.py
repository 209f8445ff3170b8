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


@pytest.mark.parametrize(
    ('content', 'words'),
    [
        (None, 'cannot be read as a file of results'),
        ('{"stitches"', 'is damaged'),
        ('{"stitches": {}}', 'is no file of results'),
    ],
)
def test_bad_files_end_in_words(run_here, tmp_path, content, words):
    path = tmp_path / 'stitches.json'
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=words):
        run_here(TOOL, path, '--out', tmp_path / 'front')
    assert not list(tmp_path.glob('front*'))


def test_results_are_drawn_over_measured_costs(run_here, tmp_path):
    stitch = dict(id=0, kind='anchor', route='fast[0:3]', flops=10, params=5)
    results = dict(metric='mIoU', higher_is_better=True, input_size=[8, 8])
    results['stitches'] = [dict(stitch, metrics=dict(mIoU=1.0))]
    (tmp_path / 'stitches.json').write_text(json.dumps(results))
    costs = dict(input_size=[8, 8], space=None)
    costs['setup'] = dict(device='a board', batch=1, dtype='float32')
    costs['stitches'] = [dict(id=0, flops=10, params=5, latency=3.5, memory=None)]
    (tmp_path / 'costs.json').write_text(json.dumps(costs))
    options = ('--cost', 'latency', '--costs', tmp_path / 'costs.json')
    run_here(TOOL, tmp_path / 'stitches.json', *options)
    picture = (tmp_path / 'pareto.svg').read_text()
    assert 'ms at 8x8 (a board, batch 1, float32)' in picture


def test_another_metric_of_the_results_is_drawn(run_here, tmp_path):
    metrics = {'coco/bbox_mAP': 0.4, 'coco/segm_mAP': 0.3}
    stitch = dict(id=0, kind='anchor', route='fast[0:3]', flops=10, params=5)
    results = dict(metric='coco/bbox_mAP', higher_is_better=True, input_size=[8, 8])
    results['stitches'] = [dict(stitch, metrics=metrics)]
    path = tmp_path / 'stitches.json'
    path.write_text(json.dumps(results))
    run_here(TOOL, path, '--metric', 'coco/segm_mAP')
    assert '<!-- coco/segm_mAP -->' in (tmp_path / 'pareto.svg').read_text()
    with pytest.raises(ValueError, match="'AP'; allowed: .*'coco/segm_mAP'"):
        run_here(TOOL, path, '--metric', 'AP')


def test_of_an_unknown_metric_the_direction_is_asked_for(run_here, tmp_path):
    stitch = dict(kind='FS', route='fast[0:3]', params=5)
    results = dict(metric='kappa', higher_is_better=True, input_size=[8, 8])
    results['stitches'] = [
        dict(stitch, id=i, flops=i + 1, metrics=dict(kappa=i)) for i in (0, 1)
    ]
    path = tmp_path / 'stitches.json'
    path.write_text(json.dumps(results))
    with pytest.raises(ValueError, match="'kappa'.*--lower-is-better kappa"):
        run_here(TOOL, path)
    for said, front in (('kappa', 1), ('none', 2)):
        run_here(TOOL, path, '--lower-is-better', said)
        picture = (tmp_path / 'pareto.svg').read_text()
        assert f'Pareto front ({front})' in picture
