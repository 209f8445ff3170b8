import os
import signal
import time
from pathlib import Path

from mmengine.dist import get_rank
from mmengine.hooks import Hook
from mmengine.registry import HOOKS


@HOOKS.register_module()
class KillRankOne(Hook):
    """Kills the second rank after three iterations."""

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        if runner.iter == 3 and get_rank() == 1:
            Path(runner.work_dir, 'killed').write_text(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
