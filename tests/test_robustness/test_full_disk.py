"""A disk that is full is said in one line, and leaves no half-written checkpoint."""

import resource
import signal

import pytest
from killing import fork, wait
from mmengine.runner import Runner

from snnet_mm.utils import UnwritableError


def test_training_on_full_disk_says_so(run_cfg, tmp_path):
    """The limit of the process stands for that of the disk."""

    def work():
        run_cfg.work_dir = str(tmp_path)
        runner = Runner.from_cfg(run_cfg)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        with pytest.raises(UnwritableError, match='iter_1.pth .*too large.*work_dir'):
            runner.train()

    assert not wait(fork(work, tmp_path))
    assert [p.name for p in tmp_path.iterdir() if 'iter' in p.name] == []
