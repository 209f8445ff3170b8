"""Checkpoints are data: what is in them runs only if the user says so."""

import pickle
import shutil
from pathlib import Path

import pytest
import torch
from mmengine.runner import checkpoint as mm_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

from snnet_mm.utils import (
    UntrustedCheckpointError,
    checkpoint,
    guard_checkpoints,
)

FAST = 'configs/toy/setr-naive_vit-fast_1xb16-300_toy-scenes-64x64.py'


class Malicious:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def load(path):
    return torch.load(path, weights_only=False)


@pytest.fixture
def trace(tmp_path):
    """The file that malicious code leaves behind."""
    return tmp_path / 'it_ran'


@pytest.fixture
def malicious(tmp_path, trace):
    """A checkpoint with malicious code beside good weights."""
    path = tmp_path / 'malicious.pth'
    torch.save(dict(state_dict=dict(w=torch.ones(2)), meta=Malicious(trace)), path)
    return path


@pytest.fixture
def guarded():
    with guard_checkpoints():
        yield


# --- the guard of a process


def test_the_guard_refuses_and_says_how_to_trust(guarded, malicious, trace):
    with pytest.raises(UntrustedCheckpointError, match='nothing of it') as error:
        CheckpointLoader.load_checkpoint(str(malicious))
    for part in (str(malicious), '--trust-checkpoint', 'load_from'):
        assert part in str(error.value)
    with pytest.raises(ValueError, match=r'none.pth does not exist .*load_from'):
        CheckpointLoader.load_checkpoint('none.pth')
    assert not trace.exists()


@pytest.mark.parametrize(
    ('address', 'error'),
    [
        ('https://x.org/a.pth', UntrustedCheckpointError),
        # Read by mmengine's own loaders, through torch.load.
        ('torchvision://a', pickle.UnpicklingError),
        ('open-mmlab://a', pickle.UnpicklingError),
    ],
)
def test_the_guard_holds_for_addresses(
    guarded, malicious, trace, monkeypatch, address, error
):
    monkeypatch.setattr(checkpoint, '_download', lambda url: malicious)
    models = dict(a='https://x.org/a.pth')
    for name in ('get_torchvision_models', 'get_external_models'):
        monkeypatch.setattr(mm_checkpoint, name, lambda: models)
    monkeypatch.setattr(mm_checkpoint, 'load_url', lambda *_, **__: load(malicious))
    with pytest.raises(error):
        CheckpointLoader.load_checkpoint(address)
    assert not trace.exists()


def test_the_guard_ends(malicious, trace):
    with guard_checkpoints():
        pass
    CheckpointLoader.load_checkpoint(str(malicious))
    assert trace.exists()


def test_the_guard_drops_configs(guarded, tmp_path):
    path = tmp_path / 'a.pth'
    torch.save(dict(meta=dict(config='1 / 0', cfg='1 / 0', iter=3)), path)
    loaded = CheckpointLoader.load_checkpoint(str(path))
    assert loaded == dict(meta=dict(iter=3))


# --- the tools


def assert_refused(done, path, trace):
    last = done.stderr.strip().splitlines()[-1]
    for part in ('UntrustedCheckpointError', str(path), '--trust-checkpoint'):
        assert part in last
    assert not trace.exists()


def assert_trusted(done, trace):
    assert 'Any code in them runs' in done.stdout + done.stderr
    assert trace.exists()


def test_testing_a_malicious_checkpoint(run_tool, demo, tmp_path, trace):
    good = load(demo[0] / Path(FAST).stem / 'iter_3.pth')
    path = tmp_path / 'malicious.pth'
    torch.save(dict(good, extra=Malicious(trace)), path)
    args = (FAST, path, '--work-dir', tmp_path / 'out')
    options = ('--cfg-options', 'test_dataloader.dataset.num_scenes=1')
    assert_refused(run_tool('test.py', *args, *options, ok=False), path, trace)
    assert_trusted(run_tool('test.py', *args, '--trust-checkpoint', *options), trace)


@pytest.fixture
def resumable(demo, tmp_path):
    """A folder to resume the fast anchor in, after three iterations."""
    work_dir = tmp_path / 'work'
    work_dir.mkdir()
    shutil.copy(demo[0] / Path(FAST).stem / 'iter_3.pth', work_dir)
    (work_dir / 'last_checkpoint').write_text(str(work_dir / 'iter_3.pth'))
    return work_dir


def resume(run_tool, work_dir, *flags, ok=True):
    options = (
        '--cfg-options',
        'train_cfg.max_iters=4',
        'train_dataloader.batch_size=2',
        'val_cfg=None',
        'val_dataloader=None',
        'val_evaluator=None',
        'param_scheduler=[]',
    )
    args = (FAST, '--work-dir', work_dir, '--resume', *flags, *options)
    return run_tool('train.py', *args, ok=ok)


def test_resuming_a_malicious_checkpoint(run_tool, resumable, trace):
    path = resumable / 'iter_3.pth'
    torch.save(dict(load(path), extra=Malicious(trace)), path)
    assert_refused(resume(run_tool, resumable, ok=False), path, trace)


@pytest.mark.parametrize('trust', [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_config_in_a_resumed_checkpoint(run_tool, resumable, trace, trust):
    path = resumable / 'iter_3.pth'
    checkpoint = load(path)
    checkpoint['meta']['config'] = f'from pathlib import Path\nPath("{trace}").touch()'
    torch.save(checkpoint, path)
    done = resume(run_tool, resumable, *['--trust-checkpoint'] * trust)
    assert load(resumable / 'iter_4.pth')['meta']['iter'] == 4
    if trust:
        assert_trusted(done, trace)
    else:
        assert not trace.exists()
