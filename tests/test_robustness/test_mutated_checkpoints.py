"""Checkpoints with a fault are refused by name, or go on rightly; none runs code."""

import copy
import random
import shutil
import traceback
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from tiny import tiny_config

from snnet_mm.apis import init_model
from snnet_mm.utils import load_weights_only

TORCH = str(Path(torch.__file__).parent)


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp('config') / 'config.py'
    cfg = tiny_config()
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    cfg.train_cfg.max_iters = 3
    cfg.test_cfg.stitches = [0]
    cfg.dump(path)
    return path


@pytest.fixture(scope='module')
def trained(config, tmp_path_factory):
    """A checkpoint after two iterations."""
    cfg = Config.fromfile(config)
    cfg.work_dir = str(tmp_path_factory.mktemp('trained'))
    cfg.train_cfg.max_iters = 2
    Runner.from_cfg(cfg).train()
    return Path(cfg.work_dir) / 'iter_2.pth'


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
    **dict.fromkeys(('state_dict', 'optimizer', 'message_hub'), ('removed',)),
    **dict.fromkeys(('meta', 'meta.iter', 'meta.seed'), ('removed',)),
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
        parent = parent[k]
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
    message = str(error)
    assert isinstance(error, ValueError), f'{type(error).__name__}: {message}'
    assert str(path) in message
    (last,) = traceback.extract_tb(error.__traceback__)[-1:]
    assert not last.filename.startswith(TORCH)


def resume(run_tool, config, work_dir):
    run_tool('train.py', config, '--work-dir', work_dir, '--resume')


def predict(config, path):
    """The outputs of a model that holds the weights of a file."""
    model = init_model(config, path, device='cpu')
    torch.manual_seed(0)
    with torch.no_grad():
        return model(torch.rand(1, 3, 32, 32), mode='tensor')


def check(trained, resumed, config, run_tool, tmp_path, place, how):
    good = load_weights_only(trained)
    work_dir = tmp_path / 'run'
    work_dir.mkdir()
    file = work_dir / 'iter_2.pth'
    torch.save(broken(good, place, how), file)
    (work_dir / 'last_checkpoint').write_text(str(file))
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
        resume(run_tool, config, work_dir)
    except ValueError as error:
        assert_clear(error, file)
        return
    got = load_weights_only(work_dir / 'iter_3.pth')['state_dict']
    assert got.keys() == resumed.keys()
    for key, value in resumed.items():
        assert torch.equal(got[key], value), key


@pytest.mark.parametrize(
    'place, how', [*FEW, *(pytest.param(*f, marks=pytest.mark.slow) for f in MANY)]
)
def test_a_fault_is_refused_or_does_no_harm(
    place, how, trained, resumed, config, run_tool, tmp_path
):
    check(trained, resumed, config, run_tool, tmp_path, place, how)


# --- damage of the file itself


def cut(content, rng):
    return content[: rng.randrange(len(content))]


def flip(content, rng):
    """One bit of the tensors or their names, wherever it is."""
    i = rng.randrange(len(content) * 9 // 10)
    return content[:i] + bytes([content[i] ^ 4]) + content[i + 1 :]


def blank(content, rng):
    """A block that was never written."""
    i = rng.randrange(len(content) - 4096)
    return content[:i] + bytes(4096) + content[i + 4096 :]


def swap(content, rng):
    return content[len(content) // 2 :] + content[: len(content) // 2]


DAMAGES = [(d, seed) for seed in range(8) for d in (cut, flip, blank, swap)]
EARLY, LATE = DAMAGES[:4], DAMAGES[4:]


@pytest.mark.parametrize(
    'damage, seed', [*EARLY, *(pytest.param(*d, marks=pytest.mark.slow) for d in LATE)]
)
def test_damaged_files_are_refused(damage, seed, trained, config, run_tool, tmp_path):
    """It is refused, or was where nothing is, between two parts of the archive."""
    work_dir = tmp_path / 'run'
    work_dir.mkdir()
    file = work_dir / 'iter_2.pth'
    file.write_bytes(damage(trained.read_bytes(), random.Random(seed)))
    (work_dir / 'last_checkpoint').write_text(str(file))
    try:
        found = predict(config, file)
    except ValueError as error:
        refused = error
    else:
        assert torch.equal(found, predict(config, trained))
        return
    assert_clear(refused, file)
    for tool in ('train.py', 'test.py'):
        where = [file] if tool == 'test.py' else ['--resume']
        with pytest.raises(ValueError, match=str(file)):
            run_tool(tool, config, *where, '--work-dir', work_dir)
