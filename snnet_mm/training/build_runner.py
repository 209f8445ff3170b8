"""The runner of a tool, with a short log on the terminal and the full log in a file."""

import logging
import time
from pathlib import Path

from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from snnet_mm.evaluation import StitchTestLoop, StitchValLoop
from snnet_mm.stitching import KEY_METRICS, short_name
from snnet_mm.utils import dicts_in, is_number
from snnet_mm.utils.logging import NOISE

OWN = str(Path(__file__).parents[1])
MOST_SECONDS = 60  # between two progress lines, at most


def build_runner(cfg: Config, mode: str, verbose: bool = False) -> Runner:
    """Build the runner of a config for ``'train'`` or ``'test'``, as mmengine does.

    Unless ``verbose``, the terminal shows only this package's messages, warnings,
    progress and metrics. The log file is always complete.
    """
    kind = RUNNERS.get(cfg.get('runner_type', 'Runner'))
    if verbose:
        return kind.from_cfg(cfg)
    if is_main_process():
        print(_summary(cfg, mode), flush=True)
    runner = type(kind.__name__, (_ShortLog, kind), {}).from_cfg(cfg)
    _shorten(runner.logger)  # the strategy of a FlexibleRunner builds it
    if is_main_process():
        print(f'Long log: {runner.log_dir}', flush=True)
        runner.register_hook(ProgressHook())
    return runner


class _ShortLog:
    """Mixin for runners that shortens the terminal log from the first message on."""

    def build_logger(self, *args, **kwargs) -> MMLogger:
        logger = super().build_logger(*args, **kwargs)
        _shorten(logger)
        return logger


def _shorten(logger: MMLogger) -> None:
    """Let only warnings and this package's messages through to the terminal."""
    for handler in logger.handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.setFormatter(_Brief())
            handler.addFilter(_is_shown)


def _summary(cfg: Config, mode: str) -> str:
    stitched = [part for part in dicts_in(cfg.model) if 'anchors' in part]
    backbone = stitched[0] if stitched else cfg.model.get('backbone') or {}
    names = [str(part['type']) for part in (cfg.model, backbone) if 'type' in part]
    if stitched:
        names += [' and '.join(str(a.get('type')) for a in backbone['anchors'])]
    loader = cfg[f'{mode}_dataloader']
    dataset = loader
    while isinstance(dataset.get('dataset'), dict):  # in wrappers such as RepeatDataset
        dataset = dataset['dataset']
    kind = dataset.get('of', dataset.get('type'))  # SeededDataset names its type so
    data = [str(kind), dataset.get('data_root')]
    data += [f'batches of {loader.get("batch_size")}']
    loop = cfg.get('train_cfg') or {}
    lengths = dict(max_iters='iterations', max_epochs='epochs')
    length = [f'{loop[key]} {unit}' for key, unit in lengths.items() if key in loop]
    words = dict(Model=names, Data=[*filter(None, data), *length * (mode == 'train')])
    return '\n'.join(f'{key}: {", ".join(value)}' for key, value in words.items())


def _is_shown(record: logging.LogRecord) -> bool:
    if record.levelno >= logging.WARNING:
        return not NOISE.search(record.getMessage())
    return record.pathname.startswith(OWN)


class _Brief(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        warned = record.levelno >= logging.WARNING
        return 'Warning: ' * warned + record.getMessage()


class ProgressHook(Hook):
    """Prints the progress and metrics of training, validation and plain tests."""

    priority = 'VERY_LOW'

    def before_train(self, runner: Runner) -> None:
        """Start the clock."""
        self._start(runner.iter)

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        """Print progress and loss."""
        loss = (outputs or {}).get('loss')
        words = '' if loss is None else f', loss {loss.item():.3g}'
        self._print('iteration', runner.iter + 1, runner.max_iters, words)

    def before_val_epoch(self, runner: Runner) -> None:
        """Start the clock."""
        self._kept = vars(self).copy()
        self._start()

    def after_val_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        """Print progress, unless the loop logs its own."""
        if not isinstance(runner.val_loop, StitchValLoop):
            self._print('validation batch', batch_idx + 1, len(runner.val_dataloader))

    def after_val_epoch(self, runner: Runner, metrics: dict | None = None) -> None:
        """Print the metrics that rank models."""
        vars(self).update(self._kept)
        _print_metrics('validation', metrics)

    def before_test_epoch(self, runner: Runner) -> None:
        """Start the clock."""
        self._start()

    def after_test_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        """Print progress, unless the loop logs its own."""
        if not isinstance(runner.test_loop, StitchTestLoop):
            self._print('test batch', batch_idx + 1, len(runner.test_dataloader))

    def after_test_epoch(self, runner: Runner, metrics: dict | None = None) -> None:
        """Print the metrics, unless the loop prints them in a table."""
        if not isinstance(runner.test_loop, StitchTestLoop):
            _print_metrics('test', metrics)

    def _start(self, done: int = 0) -> None:
        self._first, self._begin, self._said = done, time.time(), 0.0

    def _print(self, what: str, done: int, total: int, words: str = '') -> None:
        """Print from the second step on at growing intervals, and at the end."""
        now = time.time()
        elapsed = now - self._begin
        gap = min(MOST_SECONDS, 2 + elapsed / 5)
        due = done > self._first + 1 and now - self._said >= gap
        if due or (done == total and self._said):
            self._said = now
            left = elapsed / (done - self._first) * (total - done)
            eta = f'{left // 60:.0f}:{left % 60:02.0f}'
            print(f'  {what} {done}/{total}{words}, ETA {eta}', flush=True)


def _print_metrics(what: str, metrics: dict | None) -> None:
    found = {name: v for name, v in (metrics or {}).items() if is_number(v)}
    # Stitches are listed; one of them has plain names, too.
    found = {n: v for n, v in found.items() if n.startswith('stitch_')} or found
    ranking = {n: v for n, v in found.items() if short_name(n) in KEY_METRICS}
    shown = ', '.join(f'{name} {v:.4g}' for name, v in (ranking or found).items())
    print(f'  {what}: {shown}', flush=True)
