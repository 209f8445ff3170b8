"""Checkpoints with a fault are refused by name, or go on rightly; none runs code."""

import random
import traceback
from pathlib import Path

import pytest
import torch
from equality import assert_same
from mmengine.config import Config
from mmengine.runner import Runner

from snnet_mm.apis import init_model
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
TOP = ['state_dict', 'optimizer', 'message_hub', 'meta', 'meta.iter', 'meta.seed']
HISTOGRAM = 'message_hub.runtime_info.stitch_histogram'
WAYS = ('removed', 'misspelt', 'nan', 'reshaped')
ALL = [
    *((place, 'removed') for place in (*TOP, HISTOGRAM)),
    ('optimizer.state.1.exp_avg', 'reshaped'),
    *((f'state_dict.{n}', how) for n in range(0, 60, 4) for how in WAYS),
]
random.Random(5).shuffle(ALL)
FEW, MANY = ALL[:6], ALL[6:]


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


@pytest.mark.parametrize(
    'place, how', [*FEW, *(pytest.param(*f, marks=pytest.mark.slow) for f in MANY)]
)
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


def flip(content, rng):
    """One bit of the tensors or their names, wherever it is."""
    i = rng.randrange(len(content) * 9 // 10)
    return content[:i] + bytes([content[i] ^ 4]) + content[i + 1 :]


def blank(content, rng):
    """A block that was never written."""
    i = rng.randrange(len(content) - 4096)
    return content[:i] + bytes(4096) + content[i + 4096 :]


@pytest.mark.parametrize(
    'seed', [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 8))]
)
@pytest.mark.parametrize('damage', [flip, blank])
def test_damaged_files_are_refused(
    damage, seed, trained, config, resume, run_here, tmp_path
):
    """It is refused, or was where nothing is, between two parts of the archive."""
    file = tmp_path / 'iter_2.pth'
    file.write_bytes(damage(trained.read_bytes(), random.Random(seed)))
    found = outcome(file, predict, config, file)
    if found is not None:
        assert torch.equal(found, predict(config, trained))
        return
    with pytest.raises(ValueError, match=str(file)):
        resume(file)
    with pytest.raises(ValueError, match=str(file)):
        run_here('test.py', config, file, '--work-dir', file.parent)
