"""Batch norm statistics per stitch; training mixes the statistics of all stitches."""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy

import torch
from mmengine.dist import all_reduce, get_world_size
from mmengine.hooks import EMAHook, Hook
from mmengine.model import BaseModel
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from snnet_mm.costs.counting import cost_table
from snnet_mm.costs.sizes import size_of_images
from snnet_mm.datasets import random_batches
from snnet_mm.models import (
    Statistics,
    batch_norms,
    convert_batch_norms,
    find_stitched_backbone,
    set_input_size,
    set_statistics,
    set_stitch,
    unwrapped,
)
from snnet_mm.stitching import visiting_order
from snnet_mm.tasks import task_of
from snnet_mm.utils import check, is_whole, isolated_rng

KEY = 'default_hooks.stitch_statistics.num_images'


@torch.no_grad()
def recalibrate_bn(
    model: BaseModel, batches: Iterable[dict], ids: Iterable[int], mode: str = 'tensor'
) -> Statistics:
    """Estimate mean and variance of every batch norm that each stitch runs.

    The model is restored afterwards. Statistics are averaged over the batches of all
    ranks, with the same number of batches on each. Norms that a stitch does not reach,
    such as those of another anchor, have none. ``mode`` is the mode of mm's forward
    that reaches all batch norms: ``'predict'`` if some of them run on detections.
    """
    model = unwrapped(model)
    backbone, norms = find_stitched_backbone(model), batch_norms(model)
    check(norms, 'model', type(model).__name__, 'a model with batch norms')
    share = nullcontext if batch_norms(backbone) else backbone.sharing_prefixes
    stitches = visiting_order(backbone.space[i] for i in ids)
    # Sums of mean, variance and 1 over batches: a detector's heads may skip batches.
    totals = {
        (stitch.id, name): norm.running_mean.new_zeros(2 * norm.num_features + 1)
        for stitch in stitches
        for name, norm in norms.items()
    }
    # mmseg pads images smaller than a crop only in training mode, which would also run
    # batch augmentations.
    pads = not getattr(model.data_preprocessor, 'batch_augments', None)
    num_batches = 0
    with _observing(model, norms):
        for data_batch in batches:
            num_batches += 1
            data = model.data_preprocessor(data_batch, pads)
            with share():
                for stitch in stitches:
                    set_stitch(model, stitch.id)
                    for norm in norms.values():
                        norm.reset_running_stats()
                    model._run_forward(data, mode=mode)
                    for name, norm in norms.items():
                        if norm.num_batches_tracked:
                            mean, var = norm.running_mean, norm.running_var
                            sums = torch.cat([mean, var, mean.new_ones(1)])
                            totals[stitch.id, name] += sums
    check(num_batches, 'train_dataloader', num_batches, '1 batch or more')
    statistics: Statistics = {stitch.id: {} for stitch in stitches}
    for (stitch_id, name), total in totals.items():
        all_reduce(total)
        if total[-1]:
            statistics[stitch_id][name] = (total[:-1] / total[-1]).view(2, -1)
    return statistics


@contextmanager
def _observing(model: nn.Module, norms: Mapping[str, _BatchNorm]) -> Iterator[None]:
    """Set only the norms to training mode; restore the model afterwards."""
    momentum = {norm: norm.momentum for norm in norms.values()}
    states = {norm: deepcopy(norm.state_dict()) for norm in momentum}
    active, training = find_stitched_backbone(model).active_stitch, model.training
    model.eval()
    for norm in momentum:
        norm.train().momentum = None
    try:
        yield
    finally:
        set_stitch(model, active.id)
        for norm, state in states.items():
            norm.momentum = momentum[norm]
            norm.load_state_dict(state)
        model.train(training)


@HOOKS.register_module()
class StitchStatisticsHook(Hook):
    """Estimates batch norm statistics per stitch, because training mixes them.

    The estimate uses training images: for validated stitches before each validation,
    for all stitches after the last iteration. The last checkpoint contains those of all
    stitches, the best checkpoint those of validated stitches; see
    :class:`StitchBatchNorm`. Training continues with mixed statistics. For models
    without batch norms, the hook is a no-op.

    Args:
        num_images: Number of training images over all processes, rounded up to whole
            batches. 0 keeps mixed statistics, also in tests. Default: 200.
    """

    priority = 'LOW'  # after the EMA update, before a checkpoint is written
    stitched_only = True  # see StitchSamplingHook

    def __init__(self, num_images: int = 200) -> None:
        check(is_whole(num_images, 0), KEY, num_images, '0 (no statistics) or more')
        self.num_images, self.trains, self.estimated = num_images, False, False
        self.mode: str | None = None

    def before_run(self, runner: Runner) -> None:
        """Convert norms before weights are loaded, also in averages of models."""
        for model in _models(runner):
            convert_batch_norms(model)

    def before_train(self, runner: Runner) -> None:
        self.trains = True
        self._forget(runner)

    def before_test(self, runner: Runner) -> None:
        if not self.num_images:
            self._forget(runner)

    before_val = before_test

    def before_train_iter(self, runner: Runner, **_) -> None:
        if self.estimated:
            self._forget(runner)  # outdated by the next update

    def after_train_iter(self, runner: Runner, **_) -> None:
        if not self.is_last_train_iter(runner):
            return
        averages = [hook for hook in runner.hooks if isinstance(hook, EMAHook)]
        # Checkpoints store the average as weights. mmpretrain's overrides are not
        # called, as they also validate.
        for hook in averages:
            EMAHook.before_val_epoch(hook, runner)
        self._estimate(runner, find_stitched_backbone(runner.model).space.ids)
        for hook in averages:
            EMAHook.after_val_epoch(hook, runner)

    def prepare(self, runner: Runner, ids: Sequence[int]) -> None:
        """Estimate missing statistics during training; log which ones exist."""
        if not self.num_images or not batch_norms(runner.model):
            return
        if self.trains and not known_stitches(runner.model) >= {*ids}:
            self._estimate(runner, ids)
        known = len(known_stitches(runner.model) & {*ids})
        runner.logger.log(
            logging.INFO if known else logging.WARNING,
            f'{known} of {len({*ids})} stitches have batch norm statistics of their '
            f'own, the others mixed ones (config key: {KEY}, 0 for none)',
        )

    def _forget(self, runner: Runner) -> None:
        for model in _models(runner):
            set_statistics(model, {})
        self.estimated = False

    def _estimate(self, runner: Runner, ids: Sequence[int]) -> None:
        model = runner.model
        if not self.num_images or not batch_norms(model):
            return
        runner.logger.info(
            f'Estimating batch norm statistics of {len(ids)} stitches on '
            f'{self.num_images} images (config key: {KEY}, 0 for none)'
        )
        size = find_stitched_backbone(model).input_size
        with isolated_rng(runner.seed):
            set_input_size(model, None)  # no resizing, as in tests
            try:
                batches = self._batches(runner)
                if self.mode is None:
                    data = runner.train_dataloader, runner.seed
                    scope = cost_table(model, size_of_images(model, *data)).scope
                    # Heads that need more than images get it in this mode alone.
                    self.mode = 'predict' if scope else task_of(model).full_mode
                set_statistics(model, recalibrate_bn(model, batches, ids, self.mode))
                self.estimated = True
            except Exception as error:  # must not abort the training
                if get_world_size() > 1:
                    raise  # other processes would hang
                why = f'not estimated: {type(error).__name__}: {error}'
                runner.logger.warning(f'Batch norm statistics of stitches {why}')
            finally:
                set_input_size(model, size)

    def _batches(self, runner: Runner) -> Iterator[dict]:
        loader, ranks = runner.train_dataloader, get_world_size()
        # Every rank gets the same number of batches, of the same size.
        share = len(loader.dataset) // ranks
        size = min(loader.batch_size or 1, share) or 1
        number = min(math.ceil(self.num_images / size / ranks), share // size) or 1
        return random_batches(loader, runner.seed, number * size * ranks)


def _models(runner: Runner) -> list[nn.Module]:
    """Return the model that is trained, and averages of it."""
    averages = [hook.ema_model for hook in runner.hooks if isinstance(hook, EMAHook)]
    return [runner.model, *averages]


def known_stitches(model: nn.Module) -> set[int]:
    """Return the ids of stitches that have batch norm statistics of their own."""
    norms = convert_batch_norms(model).values()
    return {stitch_id for norm in norms for stitch_id in norm.statistics}


def prepare_statistics(runner: Runner, ids: Sequence[int]) -> None:
    """Let stitches run with the batch norm statistics that the runner's hook has."""
    for hook in runner.hooks:
        if isinstance(hook, StitchStatisticsHook):
            hook.prepare(runner, ids)
