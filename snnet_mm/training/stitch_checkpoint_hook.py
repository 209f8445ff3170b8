"""Checkpoints that survive an interruption at any moment.

mmengine (0.10) removes an old checkpoint before it writes the new one, writes in place,
and resumes from whatever ``last_checkpoint`` names. No public API overrides this, so
this file, and only this file, relies on mmengine's internals:

- ``Runner._resume`` and ``_load_from``, which are set before ``load_or_resume`` reads
  them, and ``_train_loop``, a loop in training and a config otherwise;
- ``CheckpointHook._save_checkpoint_with_step`` and ``_save_best_checkpoint``, which
  remove files through ``file_backend``.

If an upgrade changes these, tests/test_training/test_stitch_checkpoint_hook.py fails.
"""

import copy
import logging
import os.path as osp
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.fileio import LocalBackend, get_file_backend, register_backend
from mmengine.hooks import CheckpointHook
from mmengine.registry import HOOKS
from mmengine.runner import BaseLoop, Runner

from snnet_mm.models import unwrapped
from snnet_mm.utils import atomic_path, check, quiet_terminal, remove_leftovers
from snnet_mm.utils.checkpoints import check_weights_fit, is_whole_archive, non_finite


@register_backend('snnet_atomic', force=True)
class AtomicBackend(LocalBackend):
    """Local backend that renames a file to its final name only once it is complete."""

    def put(self, obj: bytes, filepath: str) -> None:
        with atomic_path(filepath) as temporary:
            super().put(obj, temporary)


@HOOKS.register_module()
class StitchCheckpointHook(CheckpointHook):
    """Checkpoints that survive an interruption at any moment.

    They are written under a temporary name and then renamed; older ones are deleted
    last. Weights that are not finite raise an error. ``resume=True`` without
    ``load_from`` resumes from ``last_checkpoint``, else from the newest readable
    checkpoint. Remote folders keep their own backend.

    Args:
        interval: Iterations or epochs between checkpoints. Default: the validation
            interval.
    """

    def __init__(self, interval: int | None = None, **kwargs) -> None:
        super().__init__(interval, **kwargs)

    def before_run(self, runner: Runner) -> None:
        if self.interval is None and isinstance(runner._train_loop, BaseLoop):
            self.interval = runner._train_loop.val_interval
        folder = self.out_dir or runner.work_dir
        if not runner._resume or runner._load_from or not _is_local(folder):
            return
        if folder != runner.work_dir:  # as CheckpointHook.before_train does
            folder = osp.join(folder, osp.basename(runner.work_dir.rstrip(osp.sep)))
        found = [None, None]
        if is_main_process():
            try:
                found[0] = self._find_resumable(runner, folder)
            except ValueError as error:
                found[1] = error
        broadcast_object_list(found)  # so that all ranks raise, and none hangs
        runner._load_from, error = found
        if error:
            raise error
        runner._resume = runner._load_from is not None

    def before_train(self, runner: Runner) -> None:
        local = _is_local(self.out_dir or runner.work_dir)
        if local and self.backend_args is None and self.file_client_args is None:
            self.backend_args = dict(backend='snnet_atomic')
        with quiet_terminal(runner.logger, logging.ERROR):  # of file clients
            super().before_train(runner)
        if local and is_main_process():
            remove_leftovers(self.out_dir, self.filename_tmpl.format('*'), 'best_*.pth')

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        name, resumed = runner._load_from or 'given', runner._resume
        fine_tunes = isinstance(runner._train_loop, BaseLoop) and not resumed
        model = unwrapped(runner.model)
        check_weights_fit(model, checkpoint, name, not fine_tunes, resumed)
        if resumed:
            missing = {'meta', 'message_hub', 'optimizer'} - set(checkpoint)
            missing |= {'epoch', 'iter'} - set(checkpoint.get('meta', ()))
            lacking = f'a checkpoint with {", ".join(sorted(missing))}; to start from '
            expected = f'{lacking}its weights, set resume=False'
            check(not missing, 'load_from', name, expected)
            runner.logger.info(
                'Learning rates, schedule and seed continue from the checkpoint, '
                'whatever the config says; its other settings apply.'
            )

    def _find_resumable(self, runner: Runner, folder: str) -> str | None:
        """Find the checkpoint in ``last_checkpoint``, else the newest readable one.

        The former may be torn or stale, as mmengine does not write it atomically.
        """
        note = Path(runner.work_dir, 'last_checkpoint')
        named = note.read_text().strip() if note.is_file() else ''
        if named and Path(named).is_dir():  # DeepSpeed's, which has its own reader
            return named
        pattern = re.compile(re.escape(self.filename_tmpl).replace(r'\{\}', r'(\d+)'))
        steps = {p: pattern.fullmatch(p.name) for p in Path(folder).glob('*')}
        times = [(p.stat().st_mtime_ns, int(m[1]), p) for p, m in steps.items() if m]
        newest_first = [str(path) for _, _, path in sorted(times, reverse=True)]
        paths = [*dict.fromkeys([named, *newest_first] if named else newest_first)]
        for path in paths:
            if is_whole_archive(path):
                runner.logger.info(f'Resuming from {path}.')
                return path
            runner.logger.warning(f'Not resumed from {path}: it is missing or damaged.')
        if named:
            raise ValueError(
                f'{note} names {named}, but none of {", ".join(paths)} can be read. '
                'Put a readable one there, name one (config key: load_from), or delete '
                'last_checkpoint to start from scratch'
            )
        runner.logger.warning(
            f'There is no readable checkpoint in {folder}: starting from scratch.'
        )
        return None

    def _save_checkpoint_with_step(self, runner: Runner, step: int, meta: dict) -> None:
        unit = 'epoch' if self.by_epoch else 'iteration'
        _check_finite(runner, f'after {unit} {step}')
        with self._removing_last():
            super()._save_checkpoint_with_step(runner, step, meta)

    def _save_best_checkpoint(self, runner: Runner, metrics: dict) -> None:
        if self.save_best:  # else skip: Runner.val sets no file_backend
            for name in {*self.key_indicators} - {'auto'}:
                key = 'default_hooks.checkpoint.save_best'
                check(name in metrics, key, name, list(metrics))
            _check_finite(runner, f'after iteration {runner.iter}')
            with self._removing_last():
                super()._save_best_checkpoint(runner, metrics)

    @contextmanager
    def _removing_last(self) -> Iterator[None]:
        """Defer all removals in the block until the block has succeeded."""
        backend, removals = self.file_backend, []
        self.file_backend = copy.copy(backend)
        self.file_backend.remove = removals.append
        try:
            yield
        finally:
            self.file_backend = backend
        # The new best checkpoint may have overwritten the previous one.
        best = getattr(self, 'best_ckpt_path', None)
        kept = {best, *getattr(self, 'best_ckpt_path_dict', {}).values()}
        for path in dict.fromkeys(removals):
            if path not in kept:
                backend.remove(path)


def _check_finite(runner: Runner, when: str) -> None:
    """Raise on all ranks if the weights to be saved are not finite."""
    found = [non_finite(unwrapped(runner.model).state_dict())]
    broadcast_object_list(found)
    if found[0]:
        raise diverged(runner, f'{found[0]} is not finite {when}')


def diverged(runner: Runner, what: str) -> ValueError:
    """Return the error for a diverged training, which names the last checkpoint."""
    last = runner.message_hub.runtime_info.get('last_ckpt')
    kept = f'the last checkpoint is {last}' if last else 'there is no checkpoint yet'
    return ValueError(
        f'{what}: the training diverged; {kept} (config keys: '
        'optim_wrapper.optimizer.lr, optim_wrapper.clip_grad, param_scheduler)'
    )


def _is_local(folder: str) -> bool:
    return isinstance(get_file_backend(folder), LocalBackend)
