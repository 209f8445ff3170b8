"""Checkpoints are data: what is in them runs only if the user says so."""

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import checkpoint as mm_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

from snnet_mm.utils import (
    UntrustedCheckpointError,
    checkpoint,
    guard_checkpoints,
    load_weights_only,
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


# --- reading


def test_the_malicious_checkpoint_of_these_tests_is_one(malicious, trace):
    load(malicious)
    assert trace.exists()


def test_what_mm_checkpoints_hold_is_read(tmp_path):
    history = HistoryBuffer()
    for value in (1.0, 2.5):
        history.update(value)
    path = tmp_path / 'a.pth'
    info = dict(best=np.float64(0.5), few=np.float32(2), ids=np.arange(3))
    weights = dict(w=torch.rand(3), half=torch.rand(2).half())
    saved = dict(state_dict=weights, message_hub=dict(loss=history, info=info))
    torch.save(saved, path)
    read = load_weights_only(path)
    for key, value in weights.items():
        assert torch.equal(read['state_dict'][key], value)
    found = read['message_hub']['loss']
    assert found.data[0].tolist() == [1.0, 2.5]
    assert (found.mean(), found.current()) == (1.75, 2.5)
    assert read['message_hub']['info'].pop('ids').tolist() == info.pop('ids').tolist()
    assert read['message_hub']['info'] == info


@pytest.mark.parametrize('zipped', [True, False])
def test_malicious_checkpoints_are_refused(tmp_path, trace, zipped):
    path = tmp_path / 'a.pth'
    torch.save(Malicious(trace), path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(UntrustedCheckpointError, match=f'{path} holds .* run code'):
        load_weights_only(path)
    assert not trace.exists()


@pytest.mark.parametrize('protocol', [2, 4])
def test_bare_pickles_are_refused(tmp_path, trace, protocol):
    path = tmp_path / 'a.pkl'
    path.write_bytes(pickle.dumps(Malicious(trace), protocol))
    with pytest.raises(UntrustedCheckpointError, match=f'{path} holds .* run code'):
        load_weights_only(path)
    assert not trace.exists()


class Reaching:
    """Asks for an attribute of a class that is let in."""

    def __reduce__(self):
        return getattr, (HistoryBuffer, '__init__')


def test_getattr_reaches_nothing_but_statistics(tmp_path):
    torch.save(dict(a=Reaching()), tmp_path / 'a.pth')
    with pytest.raises(UntrustedCheckpointError, match="'__init__' is not trusted"):
        load_weights_only(tmp_path / 'a.pth')


def write_text(path):
    path.write_text('no checkpoint')


def write_half(path):
    torch.save(dict(w=torch.rand(1000)), path)
    path.write_bytes(path.read_bytes()[:2000])


@pytest.mark.parametrize(
    'write, message',
    [
        (lambda path: None, 'does not exist'),
        (Path.mkdir, 'is no file'),
        (Path.touch, r'truncated, .* \(0 bytes\)'),
        (write_text, r'truncated, .* \(13 bytes\): \w+Error '),
        (write_half, r'truncated, .* \(2000 bytes\)'),
        (lambda path: torch.save([1], path), 'holds a list, a dict is wanted'),
    ],
)
def test_what_is_no_checkpoint_is_said(tmp_path, write, message):
    write(tmp_path / 'a.pth')
    with pytest.raises(ValueError, match=f'{tmp_path}/a.pth .*{message}') as error:
        load_weights_only(tmp_path / 'a.pth')
    assert not isinstance(error.value, UntrustedCheckpointError)


# --- the guard of a process


def test_the_guard_refuses_and_says_how_to_trust(guarded, malicious, trace):
    with pytest.raises(UntrustedCheckpointError, match='nothing of it') as error:
        CheckpointLoader.load_checkpoint(str(malicious))
    for part in (str(malicious), '--trust-checkpoint', 'load_from'):
        assert part in str(error.value)
    assert not trace.exists()


def test_the_guard_holds_for_addresses(guarded, malicious, trace, monkeypatch):
    monkeypatch.setattr(checkpoint, '_download', lambda url: malicious)
    with pytest.raises(UntrustedCheckpointError, match='nothing of it'):
        CheckpointLoader.load_checkpoint('https://x.org/a.pth')
    assert not trace.exists()


@pytest.mark.parametrize('address', ['torchvision://a', 'open-mmlab://a'])
def test_torch_holds_the_guard_for_names(
    guarded, malicious, trace, monkeypatch, address
):
    """They are read by mmengine's own loaders, through torch.load."""
    models = dict(a='https://x.org/a.pth')
    for name in ('get_torchvision_models', 'get_external_models'):
        monkeypatch.setattr(mm_checkpoint, name, lambda: models)
    monkeypatch.setattr(mm_checkpoint, 'load_url', lambda *_, **__: load(malicious))
    with pytest.raises(pickle.UnpicklingError, match='Weights only load failed'):
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


def test_the_guard_names_the_option_of_a_missing_file(guarded, tmp_path):
    with pytest.raises(ValueError, match=r'none.pth does not exist .*load_from'):
        CheckpointLoader.load_checkpoint(str(tmp_path / 'none.pth'))


# --- the tools


def last_line(done):
    return done.stderr.strip().splitlines()[-1]


def test_testing_a_malicious_checkpoint(run_tool, demo, tmp_path, trace):
    good = load(demo[0] / Path(FAST).stem / 'iter_3.pth')
    path = tmp_path / 'malicious.pth'
    torch.save(dict(good, extra=Malicious(trace)), path)
    args = (FAST, path, '--work-dir', tmp_path / 'out')
    options = ('--cfg-options', 'test_dataloader.dataset.num_scenes=1')
    done = run_tool('test.py', *args, *options, ok=False)
    assert 'UntrustedCheckpointError' in last_line(done)
    assert str(path) in last_line(done)
    assert '--trust-checkpoint' in last_line(done)
    assert not trace.exists()
    done = run_tool('test.py', *args, '--trust-checkpoint', *options)
    assert 'Any code in them runs' in done.stdout + done.stderr
    assert trace.exists()


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
    done = resume(run_tool, resumable, ok=False)
    assert 'UntrustedCheckpointError' in last_line(done)
    assert str(path) in last_line(done)
    assert '--trust-checkpoint' in last_line(done)
    assert not trace.exists()


@pytest.fixture
def with_config(resumable, trace):
    """The checkpoint to resume, with a config that leaves a trace."""
    path = resumable / 'iter_3.pth'
    checkpoint = load(path)
    checkpoint['meta']['config'] = f'from pathlib import Path\nPath("{trace}").touch()'
    torch.save(checkpoint, path)
    return resumable


def test_a_config_in_a_resumed_checkpoint_does_not_run(run_tool, with_config, trace):
    resume(run_tool, with_config)
    assert not trace.exists()
    assert load(with_config / 'iter_4.pth')['meta']['iter'] == 4


@pytest.mark.slow
def test_a_config_in_a_trusted_checkpoint_runs(run_tool, with_config, trace):
    done = resume(run_tool, with_config, '--trust-checkpoint')
    assert 'Any code in them runs' in done.stdout + done.stderr
    assert trace.exists()
