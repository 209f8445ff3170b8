import pickle
import shutil
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from malicious import Malicious
from mmengine.logging import HistoryBuffer, MessageHub
from safetensors.torch import save_file
from torch import nn

from snnet_mm.utils import UntrustedCheckpointError, load_weights_only
from snnet_mm.utils.checkpoints import check_weights_fit, load_url, weights_of


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'checkpoint.pth'


@pytest.mark.parametrize('zipped', [True, False])
@pytest.mark.parametrize('load', [load_weights_only, torch.load])
def test_mmengine_and_published_files_are_read_as_data(path, zipped, load):
    """Also by torch, with which mmengine itself reads them."""
    hub = MessageHub('test_checkpoint')
    for i in range(4):
        hub.update_scalar('train/loss', np.float32(2 * i))
        hub.update_scalar('train/lr', torch.tensor(0.5))
    hub.update_info('scores', np.arange(3))
    hub.update_info('best', np.float64(0.25))
    checkpoint = dict(
        meta=dict(iter=4, dataset_meta=dict(classes=('sky', 'tree'))),
        state_dict=OrderedDict(weight=torch.randn(3, 2)),
        message_hub=hub.state_dict(),
        args=Namespace(lr=0.5, name='deit'),
    )
    torch.save(checkpoint, path, _use_new_zipfile_serialization=zipped)
    loaded = load(path)
    assert loaded['meta'] == checkpoint['meta']
    assert loaded['args'] == checkpoint['args']
    assert loaded['state_dict']['weight'].equal(checkpoint['state_dict']['weight'])
    scalars = loaded['message_hub']['log_scalars']
    assert type(scalars['train/loss']) is HistoryBuffer
    assert scalars['train/loss'].mean(2) == 5
    assert scalars['train/loss'].statistics('max') == 6
    assert scalars['train/lr'].current() == 0.5
    info = loaded['message_hub']['runtime_info']
    assert info['scores'].tolist() == [0, 1, 2]
    assert info['best'] == 0.25


def test_load_weights_only_after_others_allowed_the_same(path):
    """As the maintained mmengine does for each of its loads."""
    torch.save(dict(a=HistoryBuffer([1.0], [1])), path)
    with torch.serialization.safe_globals([HistoryBuffer]):
        pass
    assert load_weights_only(path)['a'].current() == 1


def test_load_weights_only_reads_arrays_of_numpy_1(path):
    torch.save(dict(a=np.arange(3.0)), path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    assert b'numpy._core' in data
    path.write_bytes(data.replace(b'numpy._core', b'numpy.core'))
    assert load_weights_only(path)['a'].tolist() == [0, 1, 2]


@pytest.mark.filterwarnings('ignore:Detected pickle protocol')
@pytest.mark.parametrize('form', ['zipped', 'old', 'bare pickle'])
def test_load_weights_only_runs_no_code(path, form):
    trace = path.with_name('it_ran')
    checkpoint = dict(args=Namespace(hook=Malicious(Path.touch, trace)))
    if form == 'bare pickle':
        path.write_bytes(pickle.dumps(checkpoint, protocol=4))
    else:
        torch.save(checkpoint, path, _use_new_zipfile_serialization=form == 'zipped')
    with pytest.raises(UntrustedCheckpointError, match=f'{path} holds objects'):
        load_weights_only(path)
    assert not trace.exists()


def test_load_weights_only_getattr_is_of_history_buffers_alone(path):
    torch.save(dict(a=Malicious(getattr, np.ndarray, 'mean')), path)
    with pytest.raises(UntrustedCheckpointError, match="getattr of 'mean'"):
        load_weights_only(path)


@pytest.mark.parametrize(('kept', 'zipped'), [(0, True), (100, False), (-1, True)])
def test_load_weights_only_truncated_files_are_refused(path, kept, zipped):
    torch.save(
        dict(weight=torch.randn(500)), path, _use_new_zipfile_serialization=zipped
    )
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=rf'{path} .*\({path.stat().st_size} bytes\)'):
        load_weights_only(path)


def test_load_weights_only_what_is_no_checkpoint(path):
    for file, words in ((path, 'does not exist'), (path.parent, 'is not a file')):
        with pytest.raises(ValueError, match=f'{file} {words}'):
            load_weights_only(file)
    torch.save([1], path)
    with pytest.raises(ValueError, match='holds a list'):
        load_weights_only(path)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A folder and its address; torch's cache is ``tmp_path/cache``."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'cache'))
    folder = tmp_path / 'served'
    for i in range(2):
        (folder / str(i)).mkdir(parents=True)
        torch.save(dict(a=torch.tensor(i)), folder / f'{i}/pytorch_model.bin')
    (folder / 'page.pth').write_text('<html>')
    return folder, folder.as_uri()


def test_load_url_keeps_downloads_apart(served):
    folder, address = served
    urls = [f'{address}/{i}/pytorch_model.bin' for i in range(2)]
    assert [load_url(url)['a'].item() for url in urls] == [0, 1]
    shutil.rmtree(folder)
    # Now from the cache.
    assert [load_url(url)['a'].item() for url in urls] == [0, 1]


def test_load_url_failed_downloads_leave_nothing(served, tmp_path):
    _, address = served
    with pytest.raises(ValueError, match=f'{address}/none.pth '):
        load_url(f'{address}/none.pth')
    with pytest.raises(ValueError, match=f'{address}/page.pth, now'):
        load_url(f'{address}/page.pth')
    assert list(tmp_path.glob('cache/hub/checkpoints/*')) == []


def test_load_weights_only_reads_safetensors(tmp_path):
    tensor, path = torch.randn(3, 2), tmp_path / 'checkpoint.safetensors'
    save_file(dict(weight=tensor), path)
    checkpoint = load_weights_only(path)
    assert list(checkpoint) == ['state_dict']
    assert torch.equal(checkpoint['state_dict']['weight'], tensor)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match='safetensors is truncated'):
        load_weights_only(path)


@pytest.mark.parametrize(
    'held',
    [dict(a=1), dict(state_dict=dict(a=1)), dict(model=dict(module={'module.a': 1}))],
)
def test_weights_of_unwraps_state_dicts(held):
    assert weights_of(held) == dict(a=1)


def test_check_weights_fit_names_space_of_weights(build_snnet):
    model, part = (
        nn.Sequential(build_snnet(**kw)) for kw in ({}, dict(stitch_ids=[2]))
    )
    weights = model.state_dict()
    with pytest.raises(ValueError, match=r'stitch_ids.*resume\)'):
        check_weights_fit(part, weights, 'a', True, resumed=True)
    check_weights_fit(part, weights, 'a', False)
    # Weights of another depth lack parameters too; the space is what is said.
    other = nn.Sequential(build_snnet((2, 7)))
    for resumed in (True, False):
        with pytest.raises(ValueError, match='another stitching space'):
            check_weights_fit(other, weights, 'a', resumed, resumed)
    del weights['0._extra_state']  # as in older checkpoints
    check_weights_fit(model, weights, 'old.pth', True, resumed=True)
    del weights['0.stitching_initialized']
    with pytest.raises(ValueError, match='stitching_initialized'):
        check_weights_fit(model, weights, 'old.pth', True)


def test_check_weights_fit_weights_not_finite_are_refused():
    model = nn.Linear(2, 1)
    weights = model.state_dict()
    weights['bias'].fill_(float('nan'))
    with pytest.raises(ValueError, match=r'a\.pth holds bias'):
        check_weights_fit(model, weights, 'a.pth', False)
