from __future__ import annotations

import os.path as osp
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.fileio import LocalBackend, get_file_backend
from mmengine.fileio.backends import BaseStorageBackend
from mmengine.hooks import CheckpointHook
from mmengine.registry import HOOKS
from mmengine.runner import BaseLoop, Runner

from snnet_mm.utils import atomic_path, check, is_whole, remove_leftovers

from ..resume import check_weights_fit, find_resumable
from ..resumed_state import check_resumed_state


@HOOKS.register_module()
class StitchCheckpointHook(CheckpointHook):
    """Checkpoints that survive an interruption at any moment.

    A checkpoint is written under a temporary name and then renamed, then
    ``last_checkpoint`` likewise, and only then are older ones deleted. With
    ``resume=True`` and no ``load_from``, training goes on from the newest readable
    checkpoint if the last one is not. A checkpoint that is not of the model is an
    error.

    Folders that are not local are left to their own backend.

    Args:
        interval: Iterations or epochs from one checkpoint to the next; by default those
            from one validation to the next.
        max_keep_ckpts: How many checkpoints are kept; by default all.
        **kwargs: See :class:`mmengine.hooks.CheckpointHook`.
    """

    def __init__(
        self, interval: int | None = None, max_keep_ckpts: int = -1, **kwargs
    ) -> None:
        key, allowed = 'default_hooks.checkpoint', 'a whole number, -1 for none and all'
        whole = interval is None or is_whole(interval)
        check(whole, f'{key}.interval', interval, allowed)
        check(
            is_whole(max_keep_ckpts), f'{key}.max_keep_ckpts', max_keep_ckpts, allowed
        )
        super().__init__(interval, max_keep_ckpts=max_keep_ckpts, **kwargs)

    def before_run(self, runner: Runner) -> None:
        """Choose the checkpoint to resume from."""
        if self.interval is None and isinstance(runner._train_loop, BaseLoop):
            self.interval = runner._train_loop.val_interval
        if not runner._resume or runner._load_from is not None:
            return
        folder = self._folder(runner)
        if not _is_local(folder):
            return
        found = [None, None]
        if is_main_process():
            try:
                found[0] = find_resumable(
                    runner.work_dir, folder, self.filename_tmpl, runner.logger
                )
            except ValueError as error:
                found[1] = str(error)
        # All ranks end alike; none is left waiting.
        broadcast_object_list(found)
        runner._load_from, error = found
        if error:
            raise ValueError(error)
        runner._resume = runner._load_from is not None

    def before_train(self, runner: Runner) -> None:
        """Prepare the folder."""
        local = _is_local(self.out_dir or runner.work_dir)
        if local and self.backend_args is None and self.file_client_args is None:
            self.backend_args = dict(backend='snnet_atomic')
        super().before_train(runner)
        if local and is_main_process():
            names = self.filename_tmpl.format('*'), 'best_*.pth'
            remove_leftovers(self.out_dir, *names)
            remove_leftovers(runner.work_dir, 'last_checkpoint')

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Refuse a checkpoint that is not of this model."""
        name = runner._load_from or 'given'
        fine_tunes = isinstance(runner._train_loop, BaseLoop) and not runner._resume
        check_weights_fit(
            runner.model, checkpoint, name, not fine_tunes, resumed=runner._resume
        )
        if runner._resume:
            # It is a config until it is built for what is resumed.
            runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
            check_resumed_state(checkpoint, name, runner.optim_wrapper)

    def _folder(self, runner: Runner) -> str:
        """Where checkpoints of the run are, known before training starts."""
        if self.out_dir is None or self.out_dir == runner.work_dir:
            return runner.work_dir
        return osp.join(self.out_dir, osp.basename(runner.work_dir.rstrip(osp.sep)))

    def _save_checkpoint_with_step(self, runner: Runner, step: int, meta: dict) -> None:
        outdated = None
        if self.max_keep_ckpts > 0 and step not in self.keep_ckpt_ids:
            if len(self.keep_ckpt_ids) == self.max_keep_ckpts:
                outdated = self.keep_ckpt_ids.popleft()
            self.keep_ckpt_ids.append(step)
            runner.message_hub.update_info('keep_ckpt_ids', list(self.keep_ckpt_ids))
        name = self.filename_tmpl.format(step)
        self.last_ckpt = self.file_backend.join_path(self.out_dir, name)
        runner.message_hub.update_info('last_ckpt', self.last_ckpt)
        runner.save_checkpoint(
            self.out_dir,
            name,
            self.file_client_args,
            save_optimizer=self.save_optimizer,
            save_param_scheduler=self.save_param_scheduler,
            meta=meta,
            by_epoch=self.by_epoch,
            backend_args=self.backend_args,
            **self.args,
        )
        if not is_main_process():
            return
        with atomic_path(Path(runner.work_dir) / 'last_checkpoint') as temporary:
            temporary.write_text(self.last_ckpt)
        if outdated is not None:
            name = self.filename_tmpl.format(outdated)
            path = self.file_backend.join_path(self.out_dir, name)
            if self.file_backend.isfile(path):
                self.file_backend.remove(path)

    def _save_best_checkpoint(self, runner: Runner, metrics: dict) -> None:
        if not self.save_best:
            return
        with self._removing_last():
            super()._save_best_checkpoint(runner, metrics)

    @contextmanager
    def _removing_last(self) -> Iterator[None]:
        """Put off what is removed in the block until all of it went well."""
        backend, late = self.file_backend, _LateRemovals(self.file_backend)
        self.file_backend = late
        try:
            yield
        finally:
            self.file_backend = backend
        # A best checkpoint may have been written over the one before.
        if len(self.key_indicators) == 1:
            kept = [self.best_ckpt_path]
        else:
            kept = self.best_ckpt_path_dict.values()
        for path in set(late.removed) - set(kept):
            backend.remove(path)


class _LateRemovals:
    """A file backend that only notes what is to be removed."""

    def __init__(self, backend: BaseStorageBackend) -> None:
        self.backend, self.removed = backend, []

    def __getattr__(self, name: str) -> object:
        return getattr(self.backend, name)

    def remove(self, path: str) -> None:
        self.removed.append(path)


def _is_local(folder: str) -> bool:
    return isinstance(get_file_backend(folder), LocalBackend)
