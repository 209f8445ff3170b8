"""Options of tools/test.py that are mm's: pictures, predictions, augmentation."""

import runpy
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from PIL import Image

ROOT = Path(__file__).parents[2]
CONFIG = 'toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'
TTA = """
_base_ = ['{}']
tta_model = dict(type='SegTTAModel')
flips = [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)]
pack = [dict(type='PackSegInputs')]
tta_pipeline = [dict(type='TestTimeAug', transforms=[flips, pack])]
"""


@pytest.fixture(scope='module')
def tool():
    """What tools/test.py defines."""
    return runpy.run_path(str(ROOT / 'tools/test.py'), run_name='tool')


def shown(show=False, show_dir=None):
    return Namespace(show=show, show_dir=show_dir, wait_time=0.5)


def test_augmentation_and_saved_predictions(run_tool, demo, tmp_path):
    config = tmp_path / 'tta.py'
    config.write_text(TTA.format(ROOT / 'configs' / CONFIG))
    checkpoint = demo[0] / Path(CONFIG).stem / 'iter_3.pth'
    maps = []
    for options in ((), ('--tta',)):
        out = tmp_path / f'out{len(options)}'
        args = (config, checkpoint, '--stitch-id', 1, '--limit', 2, '--out', out)
        run_tool('test.py', *args, *options, '--work-dir', tmp_path)
        files = sorted(out.iterdir())
        assert len(files) == 2
        maps.append(np.stack([np.array(Image.open(file)) for file in files]))
    plain, averaged = maps
    assert plain.shape == averaged.shape == (2, 64, 64)
    assert {*np.unique(plain), *np.unique(averaged)} <= {*range(6)}
    assert 0 < (plain != averaged).mean() < 0.5


@pytest.mark.parametrize(
    ('scope', 'expected'),
    [
        ('mmseg', dict(type='A', output_dir='o')),
        ('mmdet', dict(type='A', outfile_prefix='o/detections')),
        (
            'mmpretrain',
            [
                dict(type='A'),
                dict(type='DumpResults', out_file_path='o/predictions.pkl'),
            ],
        ),
    ],
)
def test_predictions_are_saved_in_the_way_of_the_package(scope, expected, tool):
    cfg = Config(dict(default_scope=scope, test_evaluator=dict(type='A')))
    tool['save_predictions'](cfg, 'o')
    assert cfg.to_dict()['test_evaluator'] == expected
    several = Config(dict(default_scope=scope, test_evaluator=[dict(type='A')]))
    tool['save_predictions'](several, 'o')
    expected = expected if isinstance(expected, list) else [expected]
    assert several.to_dict()['test_evaluator'] == expected


def config_of(scope, loop):
    hooks = dict(visualization=dict(type='B'))
    parts = dict(test_cfg=dict(type=loop), default_hooks=hooks, visualizer=dict())
    return Config(dict(default_scope=scope, **parts))


def test_the_loop_of_stitches_draws_itself(tool):
    cfg = config_of('mmseg', 'StitchTestLoop')
    tool['set_visualization'](cfg, shown(show_dir='s'))
    wanted = dict(type='StitchTestLoop', show=False, show_dir='s', wait_time=0.5)
    assert cfg.to_dict()['test_cfg'] == wanted
    assert cfg.default_hooks.visualization == dict(type='B')


@pytest.mark.parametrize(
    ('scope', 'expected'),
    [
        ('mmdet', dict(type='B', show=True, wait_time=0.5, draw=True)),
        (
            'mmpretrain',
            dict(type='B', show=True, wait_time=0.5, enable=True, out_dir='s'),
        ),
    ],
)
def test_the_hook_of_the_package_draws_a_plain_model(scope, expected, tool):
    cfg = config_of(scope, 'TestLoop')
    tool['set_visualization'](cfg, shown(True, 's'))
    assert cfg.default_hooks.visualization == expected
    assert cfg.visualizer.get('save_dir') == ('s' if scope == 'mmdet' else None)
    cfg.default_hooks = dict()
    with pytest.raises(ValueError, match='default_hooks.visualization'):
        tool['set_visualization'](cfg, shown(True))
