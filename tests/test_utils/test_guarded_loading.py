import pickle
from pathlib import Path

import pytest
import torch
from malicious import Malicious
from mmengine.runner import checkpoint as mm_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

from snnet_mm.utils import UntrustedCheckpointError, checkpoint, guard_checkpoints

load = CheckpointLoader.load_checkpoint


@pytest.fixture
def trace(tmp_path):
    """The file that malicious code makes."""
    return tmp_path / 'it_ran'


@pytest.fixture
def malicious(tmp_path, trace):
    """A checkpoint with malicious code next to good weights."""
    path = tmp_path / 'malicious.pth'
    weights = dict(state_dict=dict(w=torch.ones(2)))
    torch.save(weights | dict(meta=Malicious(Path.touch, trace)), path)
    return path


def test_a_file_is_refused_with_how_to_trust_it(malicious, trace):
    with (
        guard_checkpoints(),
        pytest.raises(UntrustedCheckpointError, match='nothing of it') as error,
    ):
        load(str(malicious))
    for part in (str(malicious), '--trust-checkpoint', 'load_from'):
        assert part in str(error.value)
    assert not trace.exists()


def test_addresses(malicious, trace, monkeypatch):
    monkeypatch.setattr(checkpoint, '_download', lambda url: malicious)
    with (
        guard_checkpoints(),
        pytest.raises(UntrustedCheckpointError, match='nothing of it'),
    ):
        load('https://x.org/a.pth')
    assert not trace.exists()


@pytest.mark.parametrize('name', ['torchvision://a', 'open-mmlab://a'])
def test_torch_guards_what_mmengine_loads_in_other_ways(
    name, malicious, trace, monkeypatch
):
    def load_url(*args, **kwargs):
        return torch.load(malicious, weights_only=False)

    models = dict(a='https://x.org/a.pth')
    for function in ('get_torchvision_models', 'get_external_models'):
        monkeypatch.setattr(mm_checkpoint, function, lambda: models)
    monkeypatch.setattr(mm_checkpoint, 'load_url', load_url)
    with (
        guard_checkpoints(),
        pytest.raises(pickle.UnpicklingError, match='Weights only load failed'),
    ):
        load(name)
    assert not trace.exists()


@pytest.mark.parametrize('trust', [True, False])
def test_code_runs_where_it_is_trusted_and_after_the_guard(malicious, trace, trust):
    loaders = dict(CheckpointLoader._schemes)
    with guard_checkpoints(trust):
        if trust:
            load(str(malicious))
            assert trace.exists()
    assert dict(CheckpointLoader._schemes) == loaders
    load(str(malicious))
    assert trace.exists()


def test_configs_are_dropped(tmp_path):
    path = tmp_path / 'a.pth'
    torch.save(dict(meta=dict(config='1 / 0', cfg='1 / 0', iter=3)), path)
    with guard_checkpoints():
        assert load(str(path)) == dict(meta=dict(iter=3))


def test_a_missing_file_is_named_with_its_option(tmp_path):
    with (
        guard_checkpoints(),
        pytest.raises(ValueError, match=r'none.pth does not exist .*load_from'),
    ):
        load(str(tmp_path / 'none.pth'))
