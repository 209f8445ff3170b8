"""The hook that gives each stitch batch norm statistics of its own."""

import logging
import math
import os
import time
from collections.abc import Iterator, Sequence

from mmengine.dist import get_world_size
from mmengine.hooks import CheckpointHook, EMAHook, Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import nn

from snnet_mm.costs import cost_table, size_of_images
from snnet_mm.datasets import random_batches
from snnet_mm.evaluation import recalibrate_bn
from snnet_mm.models import (
    batch_norms,
    convert_batch_norms,
    find_stitched_backbone,
    known_stitches,
    set_input_size,
    set_statistics,
    unwrapped,
)
from snnet_mm.tasks import task_of
from snnet_mm.utils import check, is_whole, isolated_rng

KEY = 'default_hooks.stitch_statistics.num_images'
MAX_RUNS = 10_000  # of stitches on images, unless MIN_IMAGES need more
MIN_IMAGES = 100
SECONDS_BETWEEN_LOGS = 10


@HOOKS.register_module()
class StitchStatisticsHook(Hook):
    """Estimates batch norm statistics per stitch, because training mixes them.

    The estimate uses training images: for validated stitches before each validation,
    for all stitches after the last iteration. The last checkpoint is written without
    them, and then again with those of all stitches; the best checkpoint contains those
    that its validation had. See :class:`StitchBatchNorm`. Training continues with mixed
    statistics. For models without batch norms, the hook is a no-op.

    Args:
        num_images: Maximum number of training images over all processes, rounded up to
            whole batches. Many stitches use fewer: 10,000 divided by their number, but
            at least 100. 0 keeps mixed statistics, also in tests. Default: 200.
    """

    priority = 'LOW'  # before CheckpointHook publishes the last checkpoint
    stitched_only = True  # see StitchSamplingHook

    def __init__(self, num_images: int = 200) -> None:
        check(is_whole(num_images, 0), KEY, num_images, '0 (no statistics) or more')
        self.num_images, self.trains, self.estimated = num_images, False, False
        self.mode: str | None = None

    def before_run(self, runner: Runner) -> None:
        """Convert norms before weights are loaded, also in averages of models."""
        if not self.num_images or not batch_norms(runner.model):
            return
        for model in _models(runner):
            convert_batch_norms(model)

    def before_train(self, runner: Runner) -> None:
        self.trains = True
        if not _has_ended(runner):
            self._forget(runner)

    def before_train_iter(self, runner: Runner, **_) -> None:
        if self.estimated:
            self._forget(runner)  # outdated by the next update

    def before_val(self, runner: Runner) -> None:
        if self.trains:
            self._complete(runner)

    def after_train(self, runner: Runner) -> None:
        """Complete a training that does not validate, or was stopped while it did."""
        self._complete(runner)

    def _complete(self, runner: Runner) -> None:
        """Estimate the statistics of all stitches; add them to the last checkpoint.

        A training that was stopped here is completed when it is resumed.
        """
        ids, model = find_stitched_backbone(runner.model).space.ids, runner.model
        wanted = self.num_images and batch_norms(model) and _has_ended(runner)
        if not wanted or known_stitches(model) >= {*ids}:
            return
        averages = _averages(runner)
        # Checkpoints store the average as weights. mmpretrain's overrides are not
        # called, as they also validate.
        for hook in averages:
            EMAHook.before_val_epoch(hook, runner)
        self._estimate(runner, ids)
        for hook in averages:
            EMAHook.after_val_epoch(hook, runner)
        for hook in runner.hooks:
            if isinstance(hook, CheckpointHook):
                _save_again(runner, hook)

    def before_stitches(self, runner: Runner, ids: Sequence[int]) -> None:
        """Estimate missing statistics during training; log which ones exist."""
        if not self.num_images or not batch_norms(runner.model):
            return
        if self.trains and not known_stitches(runner.model) >= {*ids}:
            self._estimate(runner, ids)
        known, number = len(known_stitches(runner.model) & {*ids}), len({*ids})
        mixed = f', {number - known} those of all stitches' if known < number else ''
        runner.logger.log(
            logging.INFO if known else logging.WARNING,
            f'{known} of {number} stitches run with batch norm statistics of their own'
            f'{mixed} (config key: {KEY}, 0 for none)',
        )

    def _forget(self, runner: Runner) -> None:
        for model in _models(runner):
            if known_stitches(model):
                set_statistics(model, {})
        self.estimated = False

    def _estimate(self, runner: Runner, ids: Sequence[int]) -> None:
        model = runner.model
        size = find_stitched_backbone(model).input_size
        with isolated_rng(runner.seed):
            set_input_size(model, None)  # no resizing, as in tests
            try:
                batches = self._batches(runner, len(ids))
                if self.mode is None:
                    data = runner.train_dataloader, runner.seed
                    scope = cost_table(model, size_of_images(model, *data)).scope
                    # Heads that need more than images get it in this mode alone.
                    own = task_of(model).full_mode(unwrapped(model))
                    self.mode = 'predict' if scope else own
                found = recalibrate_bn(model, batches, ids, self.mode)
            except Exception as error:
                why = f'{type(error).__name__}: {error}'
                raise RuntimeError(
                    f'batch norm statistics of stitches cannot be estimated: {why} '
                    f'(config key: {KEY}, 0 for none)'
                ) from error
            finally:
                set_input_size(model, size)
        for each in _models(runner):  # checkpoints take buffers from the average
            set_statistics(each, found)
        self.estimated = True

    def _batches(self, runner: Runner, num_stitches: int) -> Iterator[dict]:
        """Yield training batches, and log the progress."""
        loader, ranks = runner.train_dataloader, get_world_size()
        wanted = min(self.num_images, max(MAX_RUNS // num_stitches, MIN_IMAGES))
        # Every rank gets the same number of batches, of the same size.
        share = len(loader.dataset) // ranks
        size = min(loader.batch_size or 1, share) or 1
        number = min(math.ceil(wanted / size / ranks), share // size) or 1
        num_images = number * size * ranks
        runner.logger.info(
            f'Estimating batch norm statistics of {num_stitches} stitches on '
            f'{num_images} images (config key: {KEY}, 0 for none)'
        )
        start = logged = time.time()
        for done, batch in enumerate(random_batches(loader, runner.seed, num_images)):
            now = time.time()
            if done == 1 or (done and now - logged > SECONDS_BETWEEN_LOGS):
                logged, each = now, (now - start) / done
                runner.logger.info(
                    f'Batch norm statistics: batch {done} of {number}, {each:.1f} s '
                    f'each, eta {each * (number - done):.0f} s'
                )
            yield batch


def _has_ended(runner: Runner) -> bool:
    return runner.iter >= runner.max_iters


def _save_again(runner: Runner, hook: CheckpointHook) -> None:
    """Write the checkpoint of the last step again, if there is one.

    A training that was complete when it was resumed has written none itself.
    """
    step = runner.epoch if hook.by_epoch else runner.iter
    last = hook.last_ckpt or (runner._load_from if runner._resume else None)
    if last and os.path.basename(last) == hook.filename_tmpl.format(step):
        runner.save_checkpoint(
            os.path.dirname(last),
            os.path.basename(last),
            hook.file_client_args,
            save_optimizer=hook.save_optimizer,
            save_param_scheduler=hook.save_param_scheduler,
            meta=dict(epoch=runner.epoch, iter=runner.iter),
            by_epoch=hook.by_epoch,
            backend_args=hook.backend_args,
            **hook.args,
        )


def _averages(runner: Runner) -> list[EMAHook]:
    """Return the hooks that have a model average; those of low priority copy later."""
    hooks = (hook for hook in runner.hooks if isinstance(hook, EMAHook))
    return [hook for hook in hooks if hasattr(hook, 'ema_model')]


def _models(runner: Runner) -> list[nn.Module]:
    """Return the model that is trained, and averages of it."""
    return [runner.model, *(hook.ema_model.module for hook in _averages(runner))]
