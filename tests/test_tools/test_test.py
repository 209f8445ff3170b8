from pathlib import Path

import pytest
import torch
from mmengine.config import Config

from snnet_mm.stitching import StitchTable
from snnet_mm.utils.configs import set_visualization

ROOT = Path(__file__).parents[2]
CONFIG = 'configs/toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'
SCENES = ('--cfg-options', 'test_dataloader.dataset.num_scenes=10')


def test_stitches_by_results_and_budget(run_here, untrained, tmp_path):
    checkpoint, path = untrained
    results = StitchTable.read(path)
    affordable = [r for r in results.rows if r.flops <= 0.04e9]
    best = min(affordable, key=lambda r: (results.score(r), r.flops)).id
    wanted = ('--budget', '0.04G', '--results', path, '--lower-is-better', 'mIoU')
    shown = ('--show-dir', tmp_path / 'show', '--limit', 2)
    args = (*wanted, *shown, '--work-dir', tmp_path, *SCENES)
    run_here('test.py', CONFIG, checkpoint, *args)
    written = StitchTable.read(next(tmp_path.glob('*/stitches.json')))
    assert [*written] == [best]
    assert written.shared('num_images') == 2
    pictures = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob('*.png')}
    folder = f'show/stitch_{best}/toy_scenes/val'
    wanted = {f'{folder}/{name}.png' for name in ('000000', '000005')}
    assert {p for p in pictures if p.startswith('show')} == wanted


@pytest.mark.slow
def test_sizes_have_one_report_each_and_a_joint_one(run_here, untrained, tmp_path):
    args = '--stitch-id', '0,1', '--limit', 2, '--work-dir', tmp_path, *SCENES
    run_here('test.py', CONFIG, untrained[0], *args, '--sizes', '32x48', '64x64')
    joint = StitchTable.read(tmp_path / 'sizes/stitches.json')
    for size in ((32, 48), (64, 64)):
        folder = tmp_path / 'sizes/{}x{}'.format(*size)
        alone = StitchTable.read(folder / 'stitches.json')
        assert [*alone] == [0, 1]
        assert joint.at(size).rows == alone.rows
        assert (folder / 'per_image.npz').exists()
    assert (tmp_path / 'sizes/pareto.png').exists()


@pytest.mark.parametrize(
    ('scope', 'test_cfg', 'loop', 'hook'),
    [
        ('mmseg', dict(type='StitchTestLoop'), dict(show_dir='s'), {}),
        ('mmdet', dict(type='TestLoop'), {}, dict(draw=True)),
        # As in mmpretrain's own configs.
        ('mmpretrain', {}, {}, dict(enable=True, out_dir='s')),
    ],
)
def test_predictions_are_drawn_in_the_way_of_the_package(scope, test_cfg, loop, hook):
    parts = dict(test_cfg=test_cfg, default_hooks=dict(visualization=dict(type='B')))
    cfg = Config(dict(default_scope=scope, visualizer=dict(), **parts))
    set_visualization(cfg, 's')
    assert cfg.test_cfg == test_cfg | loop
    assert cfg.default_hooks.visualization == dict(type='B', **hook)
    assert cfg.visualizer.get('save_dir') == ('s' if scope == 'mmdet' else None)
    cfg.default_hooks = dict()
    if not loop:
        with pytest.raises(ValueError, match='default_hooks.visualization'):
            set_visualization(cfg, 's')


def test_weights_that_are_not_finite_are_not_tested(run_here, untrained, tmp_path):
    """Also where the config has mm's own checkpoint hook, which looks at nothing."""
    weights = torch.load(untrained[0])
    weights['state_dict']['decode_head.conv_seg.bias'][2] = float('nan')
    torch.save(weights, tmp_path / 'nan.pth')
    config = tmp_path / 'config.py'
    hook = "default_hooks = dict(checkpoint=dict(_delete_=True, type='CheckpointHook'))"
    config.write_text(f"_base_ = ['{ROOT / CONFIG}']\n{hook}")
    with pytest.raises(ValueError, match='conv_seg.bias.*the training diverged'):
        run_here('test.py', config, tmp_path / 'nan.pth', '--work-dir', tmp_path)
    assert not [*tmp_path.rglob('stitches.json')]
