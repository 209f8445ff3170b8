"""What is in a checkpoint runs only if the user says so."""

from pathlib import Path

import pytest
import torch
from malicious import Malicious
from mmengine.runner import Runner
from tiny import tiny_config

from snnet_mm.apis import init_model
from snnet_mm.utils import load_weights_only


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A config, and a checkpoint after its first iteration."""
    folder = tmp_path_factory.mktemp('trained')
    cfg = tiny_config()
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    cfg.test_cfg.stitches = [0]
    cfg.dump(folder / 'config.py')
    cfg.work_dir = str(folder)
    Runner.from_cfg(cfg).train()
    return folder


def resume(run_tool, folder, work_dir, *flags):
    options = ('--cfg-options', 'train_cfg.max_iters=2')
    args = (folder / 'config.py', '--work-dir', work_dir, '--resume', *flags, *options)
    run_tool('train.py', *args)


@pytest.mark.parametrize('place', ['state_dict', 'meta', 'extra'])
def test_code_in_a_checkpoint(place, folder, run_tool, tmp_path):
    config, trace = folder / 'config.py', tmp_path / 'it_ran'
    checkpoint = load_weights_only(folder / 'iter_1.pth')
    checkpoint.setdefault(place, {})['evil'] = Malicious(Path.touch, trace)
    work_dir = tmp_path / 'run'
    work_dir.mkdir()
    file = work_dir / 'iter_1.pth'
    torch.save(checkpoint, file)
    with pytest.raises(ValueError, match=f'{file} holds objects that could run'):
        init_model(config, file, device='cpu')
    with pytest.raises(ValueError, match=f'{file}.*--trust-checkpoint'):
        resume(run_tool, folder, work_dir)
    with pytest.raises(ValueError, match=f'{file}.*--trust-checkpoint'):
        run_tool('test.py', config, file, '--work-dir', work_dir)
    assert not trace.exists()
    if place == 'extra':
        resume(run_tool, folder, work_dir, '--trust-checkpoint')
        assert trace.exists()
        assert (work_dir / 'iter_2.pth').exists()


@pytest.mark.parametrize('flags', [(), ('--trust-checkpoint',)])
def test_a_config_in_a_resumed_checkpoint(flags, folder, run_tool, tmp_path):
    """mmengine runs it."""
    trace, work_dir = tmp_path / 'it_ran', tmp_path / 'run'
    work_dir.mkdir()
    checkpoint = load_weights_only(folder / 'iter_1.pth')
    checkpoint['meta']['config'] = f'from pathlib import Path\nPath("{trace}").touch()'
    torch.save(checkpoint, work_dir / 'iter_1.pth')
    resume(run_tool, folder, work_dir, *flags)
    assert trace.exists() is bool(flags)
    assert load_weights_only(work_dir / 'iter_2.pth')['meta']['iter'] == 2
