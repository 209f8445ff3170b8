import os

import pytest
from mmengine.fileio import LocalBackend, get_file_backend

from snnet_mm.utils import AtomicBackend


@pytest.mark.parametrize(
    'method, old, new', [('put', b'old', b'new'), ('put_text', 'old', 'new')]
)
def test_a_file_changes_all_at_once(tmp_path, monkeypatch, method, old, new):
    backend = get_file_backend('', backend_args=dict(backend='snnet_atomic'))
    assert type(backend) is AtomicBackend
    path = tmp_path / 'a' / 'b.txt'
    getattr(backend, method)(old, path)
    during = []
    write = getattr(LocalBackend, method)

    def spy(backend, obj, filepath, *args):
        write(backend, obj, filepath, *args)
        during.append(path.read_text())

    monkeypatch.setattr(LocalBackend, method, spy)
    getattr(backend, method)(new, path)
    assert during == ['old']
    assert path.read_text() == 'new'
    assert os.listdir(path.parent) == ['b.txt']
