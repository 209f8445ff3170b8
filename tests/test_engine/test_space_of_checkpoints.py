"""A checkpoint goes only into a model whose stitch ids mean what they meant."""

import pytest
import torch
from mmengine.runner import Runner

from snnet_mm.stitching import TwoWaySpace
from snnet_mm.utils import load_weights_only

KEY = 'backbone._extra_state'


@pytest.fixture
def trained(toy_cfg, tmp_path):
    """A config, and a checkpoint of two iterations with a model average."""
    toy_cfg.custom_hooks = [dict(type='EMAHook', priority='NORMAL')]
    Runner.from_cfg(toy_cfg).train()
    return toy_cfg, tmp_path / 'iter_2.pth'


def start(cfg, path, name, handler=None, **changes):
    """Train for one iteration from a checkpoint, in another folder."""
    cfg = cfg.copy()
    cfg.merge_from_dict(changes)
    cfg.load_from = str(path)
    cfg.train_cfg.max_iters = 3 if cfg.resume else 1
    cfg.work_dir = f'{cfg.work_dir}/{name}'
    cfg.experiment_name = cfg.visualizer.name = cfg.work_dir
    runner = Runner.from_cfg(cfg)
    if handler is not None:
        runner.logger.addHandler(handler)
    runner.train()
    return runner


def test_what_a_checkpoint_goes_into(trained, tmp_path):
    cfg, path = trained
    checkpoint = load_weights_only(path)
    record = checkpoint['state_dict'][KEY]
    assert record.equal(checkpoint['ema_state_dict'][f'module.{KEY}'])
    space = TwoWaySpace((4, 8))
    assert f'"fingerprint":"{space.fingerprint}"' in bytes(record.numpy()).decode()

    part = {'model.backbone.stitch_ids': [2, 7]}
    with pytest.raises(ValueError, match='goes on with the stitches it began') as error:
        start(cfg, path, 'a', resume=True, **part)
    assert f'checkpoint {path}: ' in str(error.value)
    assert TwoWaySpace((4, 8), ids=[2, 7]).fingerprint in str(error.value)
    assert start(cfg, path, 'b', **part).model.backbone.space.ids == (0, 1, 2, 7)

    # Weights of another depth lack parameters too; the space is what is said.
    other = {'model.backbone.anchors.0.arch.depth': 3}
    for resume in (True, False):
        with pytest.raises(ValueError, match='another stitching space') as error:
            start(cfg, path, f'c{resume}', resume=resume, **other)
        assert 'stitches of anchors of depths (4, 8)' in str(error.value)
        assert 'config keys: backbone.type, backbone.anchors' in str(error.value)


def test_checkpoints_from_before_there_were_records(trained, tmp_path, caplog):
    cfg, path = trained
    checkpoint = torch.load(path, weights_only=False)
    del checkpoint['state_dict'][KEY]
    del checkpoint['ema_state_dict'][f'module.{KEY}']
    old = tmp_path / 'old.pth'
    torch.save(checkpoint, old)
    cfg.log_level = 'INFO'
    runner = start(cfg, old, 'a', caplog.handler, resume=True)
    assert runner.iter == 3
    messages = [r.getMessage() for r in caplog.records]
    lines = [m for m in messages if 'stitching space' in m or '_extra_state' in m]
    assert lines == [
        f'checkpoint {old} does not say which stitching space it is of; older ones do '
        'not: its ids are taken for those of the model.'
    ]
    saved = load_weights_only(f'{tmp_path}/a/iter_3.pth')
    assert {KEY, 'backbone.stitching_initialized'} <= saved['state_dict'].keys()
