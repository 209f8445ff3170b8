import os
import signal

import pytest
from killing import hold

from snnet_mm.utils import work_dir_lock


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_work_dir_lock_is_for_one_living_training(tmp_path):
    pid = hold(tmp_path, 'training')
    for _ in range(2):  # one that is refused takes nothing away
        with (
            pytest.raises(ValueError, match=r"work-dir='.*training\.lock"),
            work_dir_lock(tmp_path),
        ):
            pass
    kill(pid)
    # A killed one has left its file, and a worker has no lock to keep.
    assert (tmp_path / 'training.lock').exists()
    with work_dir_lock(tmp_path):
        if not (child := os.fork()):
            signal.pause()
    kill(hold(tmp_path, 'training'))
    kill(child)


def test_work_dir_lock_is_given_back_without_its_file(tmp_path):
    with pytest.raises(RuntimeError), work_dir_lock(tmp_path, 'export', '--out'):
        raise RuntimeError
    with work_dir_lock(tmp_path, 'export', '--out'), work_dir_lock(tmp_path, 'test'):
        pass
    assert not [*tmp_path.iterdir()]


def test_work_dir_lock_without_locks_in_the_file_system(tmp_path, monkeypatch):
    def acquire(self, timeout):
        raise OSError('no locks available')

    monkeypatch.setattr('filelock.FileLock.acquire', acquire)
    (tmp_path / 'training.lock').touch()
    with work_dir_lock(tmp_path):
        pass
    assert (tmp_path / 'training.lock').exists()  # perhaps that of another process
