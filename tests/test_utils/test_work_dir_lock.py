import os
import signal

import pytest

from snnet_mm.utils import work_dir_lock


def hold(folder):
    """Another process that trains in a folder, from when this returns."""
    ready, said = os.pipe()
    if pid := os.fork():
        os.read(ready, 1)
        return pid
    with work_dir_lock(folder):
        os.write(said, b'.')
        signal.pause()
    os._exit(0)


def test_a_folder_is_for_one_training_that_is_alive(tmp_path):
    path = tmp_path / 'training.lock'
    pid = hold(tmp_path)
    try:
        message = f"'{tmp_path}'.* process {pid} on {os.uname().nodename} does"
        for _ in range(2):  # one that is refused takes nothing away
            with pytest.raises(ValueError, match=message), work_dir_lock(tmp_path):
                pass
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    # A killed one has left its file, and a worker has no lock to keep.
    with work_dir_lock(tmp_path):
        assert path.read_text().startswith(f'process {os.getpid()} ')
        if not (child := os.fork()):
            signal.pause()
    for pid in (hold(tmp_path), child):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with pytest.raises(RuntimeError), work_dir_lock(tmp_path):
        raise RuntimeError
    with work_dir_lock(tmp_path):  # which an error gives back
        pass
