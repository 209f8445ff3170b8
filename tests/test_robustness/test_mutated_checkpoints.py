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


class Malicious:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


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


# --- what a file may hold in place of what it should


def reshaped(x):
    return torch.zeros(*(n + 1 for n in x.shape)) if x.ndim else torch.zeros(3)


VALUES = dict(
    nan=lambda x: torch.full_like(x.float(), torch.nan),
    reshaped=reshaped,
)
# Parts of a checkpoint, and what may be wrong with them; a number is the n-th key.
# Other damage shows in the check sums of the file.
PLACES = [
    *(((name,), ('removed',)) for name in ('state_dict', 'optimizer', 'message_hub')),
    *((path, ('removed',)) for path in (('meta',), ('meta', 'iter'), ('meta', 'seed'))),
    (('message_hub', 'runtime_info', 'stitch_histogram'), ('removed',)),
    (('optimizer', 'state', 1, 'exp_avg'), ('reshaped',)),
    *(
        (('state_dict', n), ('removed', 'misspelt', 'nan', 'reshaped'))
        for n in range(0, 60, 4)
    ),
]
ALL = [('.'.join(map(str, path)), path, how) for path, hows in PLACES for how in hows]
random.Random(5).shuffle(ALL)
FEW, MANY = ALL[:8], ALL[8:]


def _nth(parent, key):
    """A number is the place of a key in a dict."""
    nth = isinstance(key, int) and isinstance(parent, dict)
    return list(parent)[key] if nth else key


def broken(checkpoint, path, how):
    """A copy of a checkpoint with one fault."""
    checkpoint = copy.deepcopy(checkpoint)
    parent = checkpoint
    for key in path[:-1]:
        parent = parent[_nth(parent, key)]
    key = _nth(parent, path[-1])
    if how == 'removed':
        del parent[key]
    elif how == 'misspelt':
        parent[f'{key}x'] = parent.pop(key)
    else:
        parent[key] = VALUES[how](parent[key])
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


def check(trained, resumed, config, run_tool, tmp_path, path, how):
    good = load_weights_only(trained)
    work_dir = tmp_path / 'run'
    work_dir.mkdir()
    file = work_dir / 'iter_2.pth'
    torch.save(broken(good, path, how), file)
    (work_dir / 'last_checkpoint').write_text(str(file))
    # Prediction needs the weights alone.
    try:
        found = predict(config, file)
    except ValueError as error:
        assert_clear(error, file)
        assert path[0] in ('state_dict', 'meta')
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


def name(fault):
    return f'{fault[0]}-{fault[2]}'


@pytest.mark.parametrize('fault', FEW, ids=name)
def test_a_fault_is_refused_or_does_no_harm(
    fault, trained, resumed, config, run_tool, tmp_path
):
    check(trained, resumed, config, run_tool, tmp_path, *fault[1:])


@pytest.mark.slow
@pytest.mark.parametrize('fault', MANY, ids=name)
def test_more_faults(fault, trained, resumed, config, run_tool, tmp_path):
    check(trained, resumed, config, run_tool, tmp_path, *fault[1:])


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
EARLY, LATE = DAMAGES[:6], DAMAGES[6:]


def check_damage(damage, seed, trained, config, run_tool, tmp_path):
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


def damage_name(x):
    return getattr(x, '__name__', str(x))


@pytest.mark.parametrize('damage, seed', EARLY, ids=damage_name)
def test_damaged_files_are_refused(damage, seed, trained, config, run_tool, tmp_path):
    check_damage(damage, seed, trained, config, run_tool, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize('damage, seed', LATE, ids=damage_name)
def test_more_damage(damage, seed, trained, config, run_tool, tmp_path):
    check_damage(damage, seed, trained, config, run_tool, tmp_path)


@pytest.mark.parametrize('place', ['state_dict', 'meta', 'message_hub', 'extra'])
def test_nothing_in_a_checkpoint_runs(place, trained, config, run_tool, tmp_path):
    checkpoint, trace = load_weights_only(trained), tmp_path / 'it_ran'
    part = checkpoint.setdefault(place, {})
    part['evil'] = Malicious(trace)
    work_dir = tmp_path / 'run'
    work_dir.mkdir()
    file = work_dir / 'iter_2.pth'
    torch.save(checkpoint, file)
    with pytest.raises(ValueError, match=f'{file} holds objects that could run'):
        predict(config, file)
    for tool, where in (('train.py', ['--resume']), ('test.py', [file])):
        with pytest.raises(ValueError, match='--trust-checkpoint'):
            run_tool(tool, config, *where, '--work-dir', work_dir)
    assert not trace.exists()
