"""What mmengine loads is read as data."""

import os
import pickle
from functools import partial
from pathlib import Path

import pytest
import torch
from malicious import Malicious
from mmengine.runner import checkpoint as mm_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

from snnet_mm.utils import UntrustedCheckpointError, guard_checkpoints

load = CheckpointLoader.load_checkpoint


@pytest.fixture
def trace(tmp_path):
    """The file that malicious code makes."""
    return tmp_path / 'it_ran'


@pytest.fixture
def malicious(tmp_path, trace):
    path = tmp_path / 'checkpoint.pth'
    torch.save(dict(state_dict={}, meta=Malicious(Path.touch, trace)), path)
    return path


@pytest.mark.parametrize('name', ['{file}', 'https://x.org/a.pth'])
def test_guard_checkpoints_says_how_to_trust_what_it_refuses(
    name, malicious, trace, monkeypatch
):
    content = malicious.read_bytes()
    download = lambda url, path, **_: Path(path).write_bytes(content)  # noqa: E731
    monkeypatch.setattr(torch.hub, 'download_url_to_file', download)
    monkeypatch.setenv('TORCH_HOME', str(malicious.parent))
    words = '--trust-checkpoint .*load_from'
    with guard_checkpoints(), pytest.raises(UntrustedCheckpointError, match=words):
        load(name.format(file=malicious))
    assert not trace.exists()


def test_guard_checkpoints_other_loads_of_mmengine_are_refused(
    malicious, trace, monkeypatch
):
    """By torch itself."""
    unsafe = partial(torch.load, malicious, weights_only=False)
    models = dict(a='https://x.org/a.pth')
    monkeypatch.setattr(mm_checkpoint, 'get_external_models', lambda: models)
    monkeypatch.setattr(mm_checkpoint, 'load_url', lambda *args, **kwargs: unsafe())
    with guard_checkpoints(), pytest.raises(pickle.UnpicklingError, match='^Weights'):
        load('open-mmlab://a')
    assert not trace.exists()


@pytest.mark.parametrize('trust', [True, False])
def test_guard_checkpoints_trusted_code_runs(malicious, trace, trust):
    """mmengine's own loaders are back after the guard."""
    loaders = dict(CheckpointLoader._schemes)
    with guard_checkpoints(trust):
        if trust:
            load(str(malicious))
    assert trace.exists() == trust
    assert dict(CheckpointLoader._schemes) == loaders
    assert not [name for name in os.environ if name.endswith('WEIGHTS_ONLY_LOAD')]


def test_guard_checkpoints_ignores_switch_of_torch(malicious, trace, monkeypatch):
    """The one that makes torch unpickle all."""
    monkeypatch.setenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', '1')
    with guard_checkpoints():
        with guard_checkpoints():
            pass
        with pytest.raises(UntrustedCheckpointError):
            load(str(malicious))
    assert not trace.exists()
    names = [name for name in os.environ if name.endswith('WEIGHTS_ONLY_LOAD')]
    assert names == ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD']


def test_guard_checkpoints_drops_configs(tmp_path):
    path = tmp_path / 'a.pth'
    torch.save(dict(meta=dict(config='1 / 0', cfg='1 / 0', iter=3)), path)
    with guard_checkpoints():
        assert load(str(path)) == dict(meta=dict(iter=3))
