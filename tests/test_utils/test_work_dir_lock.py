import os
import signal

import pytest
from killing import hold

from snnet_mm.utils import folder_lock, work_dir_lock


def test_a_folder_is_for_one_training_that_is_alive(tmp_path):
    path = tmp_path / 'training.lock'
    pid = hold(tmp_path, 'training')
    try:
        of = f'process {pid} on {os.uname().nodename}'
        message = f"'{tmp_path}'.* without another training, such as that of {of}"
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
    for pid in (hold(tmp_path, 'training'), child):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with pytest.raises(RuntimeError), work_dir_lock(tmp_path):
        raise RuntimeError
    with work_dir_lock(tmp_path):  # which an error gives back
        pass


def test_a_folder_has_one_holder_and_no_file_of_it(tmp_path):
    def hold():
        return folder_lock(tmp_path, '--out', 'exporting')

    words = "out='.*' is invalid"
    with hold(), pytest.raises(ValueError, match=words), hold():
        pass
    with pytest.raises(RuntimeError), hold():
        raise RuntimeError
    with hold():  # which an error gives back
        assert not [*tmp_path.iterdir()]
