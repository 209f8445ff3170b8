"""Checkpoints with a fault are refused by name, or go on rightly; none runs code."""

import traceback
from pathlib import Path

import pytest
import torch
from equality import assert_same
from mmengine.config import Config
from mmengine.runner import Runner

from snnet_mm.inference.init_model import init_model
from snnet_mm.utils import load_weights_only

TORCH = str(Path(torch.__file__).parent)


@pytest.fixture(scope='module')
def resumed(config, trained, tmp_path_factory):
    """The weights after the third iteration."""
    cfg = Config.fromfile(config)
    cfg.work_dir, cfg.load_from = str(tmp_path_factory.mktemp('a')), str(trained)
    cfg.experiment_name, cfg.resume = 'resumed', True
    Runner.from_cfg(cfg).train()
    return load_weights_only(Path(cfg.work_dir) / 'iter_3.pth')['state_dict']


# What may be wrong in the places of a checkpoint; a number is the n-th key. Other
# damage shows in the check sums of the file.
FAULTS = [
    ('optimizer', 'removed'),
    ('meta.seed', 'removed'),
    ('message_hub.runtime_info.stitch_histogram', 'removed'),
    ('optimizer.state.1.exp_avg', 'reshaped'),
    ('state_dict.4', 'removed'),
    ('state_dict.8', 'misspelt'),
    ('state_dict.12', 'nan'),
    ('state_dict.16', 'reshaped'),
]


def broken(checkpoint, place, how):
    """A checkpoint with one fault."""
    parent = checkpoint
    *parents, key = (int(k) if k.isdigit() else k for k in place.split('.'))
    for k in parents:
        parent = parent[list(parent)[k] if isinstance(k, int) else k]
    if isinstance(key, int):
        key = list(parent)[key]
    old = parent.pop(key)
    if how == 'misspelt':
        parent[f'{key}x'] = old
    elif how == 'nan':
        parent[key] = torch.full_like(old.float(), torch.nan)
    elif how == 'reshaped':
        parent[key] = torch.zeros(*(n + 1 for n in old.shape or [2]))
    return checkpoint


def outcome(path, function, *args):
    """What a function returns, or None after one sentence of ours naming the file."""
    try:
        return function(*args)
    except ValueError as error:
        refused = error
    assert str(path) in str(refused)
    assert TORCH not in traceback.extract_tb(refused.__traceback__)[-1].filename
    return None


def predict(config, path):
    """The outputs of a model that holds the weights of a file."""
    model = init_model(config, path, device='cpu')
    torch.manual_seed(0)
    with torch.no_grad():
        return model(torch.rand(1, 3, 32, 32), mode='tensor')


@pytest.fixture
def resume(tmp_path, config, run_here):
    """Goes on with the training of a checkpoint; returns the weights at its end."""

    def resume(file):
        (tmp_path / 'last_checkpoint').write_text(str(file))
        run_here('train.py', config, '--resume', '--work-dir', tmp_path)
        return load_weights_only(file.with_name('iter_3.pth'))['state_dict']

    return resume


@pytest.mark.parametrize('place, how', FAULTS)
def test_a_fault_is_refused_or_does_no_harm(
    place, how, trained, resumed, config, resume, tmp_path
):
    file = tmp_path / 'iter_2.pth'
    torch.save(broken(load_weights_only(trained), place, how), file)
    # Prediction needs the weights alone.
    found = outcome(file, predict, config, file)
    if found is None:
        assert place.startswith(('state_dict', 'meta'))
    else:
        assert torch.equal(found, predict(config, trained))
    # Training needs all.
    weights = outcome(file, resume, file)
    if weights is not None:
        assert_same(weights, resumed)


def test_damaged_files_are_refused(trained, config, resume, run_here, tmp_path):
    """One bit of a tensor is another."""
    file, content = tmp_path / 'iter_2.pth', bytearray(trained.read_bytes())
    weights = load_weights_only(trained)['state_dict'].values()
    content[content.index(max(weights, key=torch.numel).numpy().tobytes())] ^= 4
    file.write_bytes(content)
    assert outcome(file, predict, config, file) is None
    with pytest.raises(ValueError, match=str(file)):
        resume(file)
    with pytest.raises(ValueError, match=str(file)):
        run_here('test.py', config, file, '--work-dir', file.parent)
