import os
import pickle
import threading
from argparse import Namespace
from collections import OrderedDict
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from malicious import Malicious
from mmengine.logging import HistoryBuffer, MessageHub
from mmengine.runner import checkpoint as mm_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader
from safetensors.torch import save_file

from snnet_mm.utils import (
    UntrustedCheckpointError,
    checkpoint,
    guard_checkpoints,
    load_weights_only,
)
from snnet_mm.utils.checkpoint import load_url


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'checkpoint.pth'


def message_hub():
    hub = MessageHub('test_checkpoint')
    for i in range(4):
        hub.update_scalar('train/loss', np.float32(2 * i))
        hub.update_scalar('train/lr', torch.tensor(0.5))
    hub.update_info('iter', 4)
    hub.update_info('scores', np.arange(3))
    hub.update_info('best', np.float64(0.25))
    return hub.state_dict()


@pytest.mark.parametrize('zipped', [True, False])
def test_checkpoints_of_mmengine(path, zipped):
    checkpoint = dict(
        meta=dict(iter=4, dataset_meta=dict(classes=('sky', 'tree'))),
        state_dict=OrderedDict(weight=torch.randn(3, 2)),
        message_hub=message_hub(),
    )
    torch.save(checkpoint, path, _use_new_zipfile_serialization=zipped)
    before = set(torch.serialization.get_safe_globals())
    loaded = load_weights_only(path)
    assert set(torch.serialization.get_safe_globals()) == before
    assert loaded['meta'] == checkpoint['meta']
    assert loaded['state_dict']['weight'].equal(checkpoint['state_dict']['weight'])
    scalars = loaded['message_hub']['log_scalars']
    assert type(scalars['train/loss']) is HistoryBuffer
    assert scalars['train/loss'].mean(2) == 5
    assert scalars['train/loss'].statistics('max') == 6
    assert scalars['train/lr'].current() == 0.5
    info = loaded['message_hub']['runtime_info']
    assert info['scores'].tolist() == [0, 1, 2]
    assert (info['iter'], info['best']) == (4, 0.25)


def test_arrays_that_numpy_1_saved(path):
    torch.save(dict(a=np.arange(3.0)), path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    assert b'numpy._core' in data
    path.write_bytes(data.replace(b'numpy._core', b'numpy.core'))
    assert load_weights_only(path)['a'].tolist() == [0, 1, 2]


@pytest.mark.filterwarnings('ignore:Detected pickle protocol')
@pytest.mark.parametrize('form', ['zipped', 'old', 'bare pickle'])
def test_code_in_a_checkpoint_is_not_run(path, tmp_path, form):
    trace = tmp_path / 'run'
    attack = Malicious(os.system, f'touch {trace}')
    checkpoint = dict(state_dict=dict(a=torch.ones(1)), meta=attack)
    if form == 'bare pickle':
        path.write_bytes(pickle.dumps(checkpoint, protocol=4))
    else:
        torch.save(checkpoint, path, _use_new_zipfile_serialization=form == 'zipped')
    with pytest.raises(ValueError, match=f'{path} holds objects that could run code: '):
        load_weights_only(path)
    assert not trace.exists()


@pytest.mark.parametrize(
    ('held', 'name'),
    [
        (Malicious(getattr, np.ndarray, 'mean'), "getattr of 'mean'"),
        (Namespace(lr=1), 'argparse.Namespace'),
    ],
)
def test_other_objects_are_refused_by_name(path, held, name):
    torch.save(dict(model=dict(a=torch.ones(1)), args=held), path)
    with pytest.raises(ValueError, match=f'could run code: .*{name}'):
        load_weights_only(path)


@pytest.mark.parametrize('zipped', [True, False])
@pytest.mark.parametrize('kept', [0, 100, -1])
def test_truncated_files(path, kept, zipped):
    whole = dict(weight=torch.randn(500))
    torch.save(whole, path, _use_new_zipfile_serialization=zipped)
    path.write_bytes(path.read_bytes()[:kept])
    size = path.stat().st_size
    message = rf'{path} is truncated, damaged or no checkpoint at all \({size} bytes\)'
    with pytest.raises(ValueError, match=message):
        load_weights_only(path)


@pytest.mark.parametrize(
    ('write', 'message'),
    [
        (lambda path: None, 'does not exist'),
        (lambda path: path.mkdir(), 'is no file'),
        (lambda path: torch.save([1], path), 'holds a list, a dict is wanted'),
    ],
)
def test_what_is_no_checkpoint(path, write, message):
    write(path)
    with pytest.raises(ValueError, match=f'{path} .*{message}'):
        load_weights_only(path)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serves ``tmp_path/served``; torch's cache is ``tmp_path/cache``."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'cache'))
    monkeypatch.setenv('no_proxy', '*')
    (tmp_path / 'served').mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = partial(Handler, directory=str(tmp_path / 'served'))
    with ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield f'http://127.0.0.1:{server.server_port}'
        server.shutdown()


def test_downloads_are_kept_apart(server, tmp_path):
    for i in range(2):
        folder = tmp_path / f'served/{i}'
        folder.mkdir()
        torch.save(dict(a=torch.tensor(i)), folder / 'pytorch_model.bin')
    urls = [f'{server}/{i}/pytorch_model.bin' for i in range(2)]
    assert [load_url(url)['a'].item() for url in urls] == [0, 1]
    for file in tmp_path.glob('served/*/*'):
        file.unlink()
    # Now from the cache.
    assert [load_url(url)['a'].item() for url in urls] == [0, 1]


def test_downloads_that_fail(server, tmp_path):
    with pytest.raises(ValueError, match=f'{server}/none.pth cannot be fetched: .*404'):
        load_url(f'{server}/none.pth')
    (tmp_path / 'served' / 'page.pth').write_text('<html>')
    with pytest.raises(ValueError, match=f'from {server}/page.pth, now deleted'):
        load_url(f'{server}/page.pth')
    assert list(tmp_path.glob('cache/hub/checkpoints/*')) == []


def test_safetensors_become_a_state_dict(tmp_path):
    tensor, path = torch.randn(3, 2), tmp_path / 'checkpoint.safetensors'
    save_file(dict(weight=tensor), path)
    checkpoint = load_weights_only(path)
    assert list(checkpoint) == ['state_dict']
    assert torch.equal(checkpoint['state_dict']['weight'], tensor)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match='safetensors is truncated, damaged'):
        load_weights_only(path)


# --- what mmengine loads

load = CheckpointLoader.load_checkpoint


@pytest.fixture
def trace(tmp_path):
    """The file that malicious code makes."""
    return tmp_path / 'it_ran'


@pytest.fixture
def malicious(tmp_path, trace):
    path = tmp_path / 'malicious.pth'
    torch.save(dict(state_dict={}, meta=Malicious(Path.touch, trace)), path)
    return path


@pytest.mark.parametrize('name', ['{file}', 'https://x.org/a.pth'])
def test_what_is_refused_is_said_with_how_to_trust_it(
    name, malicious, trace, monkeypatch
):
    monkeypatch.setattr(checkpoint, '_download', lambda url: malicious)
    words = f'{malicious} .*nothing of it .*--trust-checkpoint .*load_from'
    with guard_checkpoints(), pytest.raises(UntrustedCheckpointError, match=words):
        load(name.format(file=malicious))
    assert not trace.exists()


@pytest.mark.parametrize('name', ['torchvision://a', 'open-mmlab://a'])
def test_torch_guards_what_mmengine_loads_in_other_ways(
    name, malicious, trace, monkeypatch
):
    unsafe = partial(torch.load, malicious, weights_only=False)
    models = dict(a='https://x.org/a.pth')
    for function in ('get_torchvision_models', 'get_external_models'):
        monkeypatch.setattr(mm_checkpoint, function, lambda: models)
    monkeypatch.setattr(mm_checkpoint, 'load_url', lambda *args, **kwargs: unsafe())
    with guard_checkpoints(), pytest.raises(pickle.UnpicklingError, match='^Weights'):
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
