"""Progress and metrics on the terminal."""

import time

from mmengine.hooks import Hook
from mmengine.runner import Runner

from snnet_mm.evaluation import StitchTestLoop, StitchValLoop
from snnet_mm.stitching import KEY_METRICS, short_name
from snnet_mm.utils import is_number

MAX_SECONDS = 60  # between two lines


class ProgressHook(Hook):
    """Prints progress at growing intervals, and the metrics that rank models.

    The loops of stitches log their own progress.
    """

    priority = 'VERY_LOW'

    def __init__(self) -> None:
        # First iteration, start, and time of the last line, by mode.
        self.clocks: dict[str, list[float]] = {}

    def before_train(self, runner: Runner) -> None:
        """Start the clock."""
        self.clocks['train'] = [runner.iter, time.time(), 0.0]

    def _before_epoch(self, runner: Runner, mode: str = 'train') -> None:
        if mode != 'train':
            self.clocks[mode] = [0, time.time(), 0.0]

    def _after_iter(
        self, runner, batch_idx, data_batch=None, outputs=None, mode='train'
    ) -> None:
        words, loop = '', getattr(runner, f'{mode}_loop')
        if isinstance(loop, StitchValLoop | StitchTestLoop):
            return
        done, total = batch_idx + 1, len(loop.dataloader)
        if mode == 'train':
            done, total = runner.iter + 1, runner.max_iters
            if 'loss' in (outputs or {}):
                words = f', loss {outputs["loss"].item():.3g}'
        first, begin, said = self.clocks[mode]
        now = time.time()
        # Nothing is said of the first iteration, which is slower than others.
        due = done > first + 1 and now - said >= min(MAX_SECONDS, 2 + (now - begin) / 5)
        if due or (done == total and said):
            self.clocks[mode][2] = now
            left = round((now - begin) / (done - first) * (total - done))
            eta = f'ETA {left // 60}:{left % 60:02}'
            print(f'  {mode} {done}/{total}{words}, {eta}', flush=True)

    def after_val_epoch(self, runner: Runner, metrics: dict | None = None) -> None:
        """Print the metrics that rank models."""
        found = {name: v for name, v in (metrics or {}).items() if is_number(v)}
        # Stitches are listed; one of them has plain names, too.
        found = {n: v for n, v in found.items() if n.startswith('stitch_')} or found
        ranking = {n: v for n, v in found.items() if short_name(n) in KEY_METRICS}
        shown = ', '.join(f'{name} {v:.4g}' for name, v in (ranking or found).items())
        print(f'  {shown}', flush=True)

    def after_test_epoch(self, runner: Runner, metrics: dict | None = None) -> None:
        """Print the metrics, unless the loop prints them in a table."""
        if not isinstance(runner.test_loop, StitchTestLoop):
            self.after_val_epoch(runner, metrics)
