import os
import signal

import pytest
from killing import hold

from snnet_mm.utils import folder_lock, work_dir_lock


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_work_dir_lock_is_for_one_living_training(tmp_path):
    pid = hold(tmp_path, 'training')
    words = f'process {pid} on '
    for _ in range(2):  # one that is refused takes nothing away
        with pytest.raises(ValueError, match=words), work_dir_lock(tmp_path):
            pass
    kill(pid)
    # A killed one has left its file, and a worker has no lock to keep.
    with work_dir_lock(tmp_path):
        owner = (tmp_path / 'training.lock').read_text()
        assert owner.startswith(f'process {os.getpid()} ')
        if not (child := os.fork()):
            signal.pause()
    kill(hold(tmp_path, 'training'))
    kill(child)


def test_folder_lock_has_one_holder_and_no_file(tmp_path):
    def hold():
        return folder_lock(tmp_path, '--out', 'exporting')

    with hold(), pytest.raises(ValueError, match="out='.*' is invalid"), hold():
        pass
    with pytest.raises(RuntimeError), hold():
        raise RuntimeError
    with hold():  # which an error gives back
        assert not [*tmp_path.iterdir()]
