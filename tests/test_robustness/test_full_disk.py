"""A disk that is full, or a folder that cannot be written to, is said in one line."""

import resource
import signal
from contextlib import contextmanager

import pytest
from killing import fork, wait
from mmengine.runner import Runner

from snnet_mm.utils import UnwritableError

# Arguments of each tool, the last before its folder.
TOOLS = {
    'train.py': '{config} --work-dir',
    'export_stitch.py': '{config} {trained} --stitch-id 1 --out',
}


@pytest.mark.parametrize('tool', TOOLS)
def test_a_folder_that_cannot_be_written_to(tool, config, trained, run_here):
    """It takes no files, which stops the superuser, too."""
    args = TOOLS[tool].format(config=config, trained=trained).split()
    words = f'/proc/fdinfo cannot be written to: .*{args[-1]}'
    with pytest.raises(ValueError, match=words) as error:
        run_here(tool, *args, '/proc/fdinfo')
    assert '\n' not in str(error.value)


@contextmanager
def small_disk(words):
    """The limit of the process stands for that of the disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
    with pytest.raises(UnwritableError, match=words):
        yield


def test_a_disk_that_is_full_for_real(run_cfg, tmp_path):
    def work():
        run_cfg.work_dir = str(tmp_path)
        runner = Runner.from_cfg(run_cfg)
        with small_disk('iter_1.pth cannot be .*: File too'):
            runner.train()

    assert not wait(fork(work, tmp_path))
    assert [p.name for p in tmp_path.iterdir() if 'iter' in p.name] == []
