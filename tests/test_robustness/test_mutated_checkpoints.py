"""Checkpoints with a fault are refused by name, or go on rightly; none runs code."""

import copy
import random
import shutil
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
    """The weights after the third."""
    cfg = Config.fromfile(config)
    cfg.work_dir = str(tmp_path_factory.mktemp('resumed'))
    cfg.experiment_name = cfg.visualizer.name = 'resumed'
    shutil.copy(trained, cfg.work_dir)
    cfg.resume = True
    Runner.from_cfg(cfg).train()
    return load_weights_only(Path(cfg.work_dir) / 'iter_3.pth')['state_dict']


# What may be wrong in the places of a checkpoint; a number is the n-th key. Other
# damage shows in the check sums of the file.
PLACES = {
    **dict.fromkeys(('state_dict', 'optimizer', 'message_hub', 'meta'), ('removed',)),
    **dict.fromkeys(('meta.iter', 'meta.seed'), ('removed',)),
    'message_hub.runtime_info.stitch_histogram': ('removed',),
    'optimizer.state.1.exp_avg': ('reshaped',),
    **{
        f'state_dict.{n}': ('removed', 'misspelt', 'nan', 'reshaped')
        for n in range(0, 60, 4)
    },
}
ALL = [(place, how) for place, hows in PLACES.items() for how in hows]
random.Random(5).shuffle(ALL)
FEW, MANY = ALL[:6], ALL[6:]


def broken(checkpoint, place, how):
    """A copy of a checkpoint with one fault."""
    parent = checkpoint = copy.deepcopy(checkpoint)
    *parents, key = (int(k) if k.isdigit() else k for k in place.split('.'))
    for k in parents:
        parent = parent[list(parent)[k] if isinstance(k, int) else k]
    if parents == ['state_dict']:
        key = list(parent)[key]
    old = parent.pop(key)
    if how == 'misspelt':
        parent[f'{key}x'] = old
    elif how == 'nan':
        parent[key] = torch.full_like(old.float(), torch.nan)
    elif how == 'reshaped':
        parent[key] = torch.zeros(*(n + 1 for n in old.shape or [2]))
    return checkpoint


def assert_clear(error, path):
    """One sentence of ours that names the file."""
    assert str(path) in str(error)
    (last,) = traceback.extract_tb(error.__traceback__)[-1:]
    assert not last.filename.startswith(TORCH)


def predict(config, path):
    """The outputs of a model that holds the weights of a file."""
    model = init_model(config, path, device='cpu')
    torch.manual_seed(0)
    with torch.no_grad():
        return model(torch.rand(1, 3, 32, 32), mode='tensor')


@pytest.fixture
def put(tmp_path, config, run_here):
    """Puts a checkpoint where a training goes on; the file, and how to go on."""
    file = tmp_path / 'iter_2.pth'
    (tmp_path / 'last_checkpoint').write_text(str(file))
    args = 'train.py', config, '--resume', '--work-dir', tmp_path
    return file, lambda: run_here(*args)


@pytest.mark.parametrize(
    'place, how', [*FEW, *(pytest.param(*f, marks=pytest.mark.slow) for f in MANY)]
)
def test_a_fault_is_refused_or_does_no_harm(place, how, trained, resumed, config, put):
    file, resume = put
    torch.save(broken(load_weights_only(trained), place, how), file)
    # Prediction needs the weights alone.
    try:
        found = predict(config, file)
    except ValueError as error:
        assert_clear(error, file)
        assert place.startswith(('state_dict', 'meta'))
    else:
        assert torch.equal(found, predict(config, trained))
    # Training needs all.
    try:
        resume()
    except ValueError as error:
        assert_clear(error, file)
    else:
        got = load_weights_only(file.with_name('iter_3.pth'))['state_dict']
        assert_same(got, resumed)


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
def test_damaged_files_are_refused(damage, seed, trained, config, put, run_here):
    """It is refused, or was where nothing is, between two parts of the archive."""
    file, resume = put
    file.write_bytes(damage(trained.read_bytes(), random.Random(seed)))
    try:
        found = predict(config, file)
    except ValueError as error:
        assert_clear(error, file)
        with pytest.raises(ValueError, match=str(file)):
            resume()
        with pytest.raises(ValueError, match=str(file)):
            run_here('test.py', config, file, '--work-dir', file.parent)
    else:
        assert torch.equal(found, predict(config, trained))
