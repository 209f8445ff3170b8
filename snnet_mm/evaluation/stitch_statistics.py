"""Batch norm statistics of each stitch in trainings, checkpoints and tests."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from mmengine.dist import get_world_size
from mmengine.hooks import EMAHook, Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import nn

from snnet_mm.costs.counting import cost_table
from snnet_mm.costs.extensions import FORWARDS, rule_for
from snnet_mm.costs.parts import size_of_images
from snnet_mm.datasets import random_batches
from snnet_mm.models import (
    STATISTICS,
    attach_statistics,
    find_stitched_backbone,
    recalibrate_bn,
    set_input_size,
    unwrapped,
)
from snnet_mm.models.per_stitch_bn import Statistics, batch_norms
from snnet_mm.utils import check, is_whole, isolated_rng, register


@register(HOOKS)
class StitchStatisticsHook(Hook):
    """Gives batch norms statistics of each stitch, where training mixes those of all.

    They are estimated on training images: those of validated stitches before a
    validation, those of all stitches after the last iteration. The last checkpoint
    holds them as ``stitch_statistics``, one that is saved as the best those of the
    validated stitches; a test of that checkpoint uses them. Training goes on with the
    mixed ones, and draws nothing else. Models without batch norms are left alone.

    Args:
        num_images: Training images of the estimate, of all processes together; whole
            batches of the training are taken. 0 leaves everything mixed, in tests too.
    """

    priority = 'LOW'  # after a model average has moved, before a checkpoint is written
    stitched_only = True  # see StitchSamplingHook

    def __init__(self, num_images: int = 200) -> None:
        key = 'StitchStatisticsHook.num_images'
        check(is_whole(num_images, 0), key, num_images, '1 or more, 0 for none')
        self.num_images, self.trains = num_images, False
        self.statistics: Statistics = {}
        self.mode: str | None = None

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        self.statistics = checkpoint.get(STATISTICS, {}) if self.num_images else {}

    def before_train(self, runner: Runner) -> None:
        self.statistics, self.trains = {}, True  # what was loaded is forgotten

    def before_train_iter(self, runner: Runner, **_) -> None:
        self.statistics = {}  # the weights will be others

    def after_train_iter(self, runner: Runner, **_) -> None:
        if not self.is_last_train_iter(runner):
            return
        averages = [hook for hook in runner.hooks if isinstance(hook, EMAHook)]
        # A checkpoint's weights are the average. mmpretrain's hook validates besides.
        for hook in averages:
            EMAHook.before_val_epoch(hook, runner)
        self._estimate(runner, find_stitched_backbone(runner.model).space.ids)
        for hook in averages:
            EMAHook.after_val_epoch(hook, runner)

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        if self.statistics:
            checkpoint[STATISTICS] = {
                i: {key: value.cpu() for key, value in values.items()}
                for i, values in self.statistics.items()
            }

    def of(self, runner: Runner, ids: Sequence[int]) -> Statistics:
        """Return what is known of the weights, estimated now if a training asks."""
        if self.trains and not self.statistics.keys() >= {*ids}:
            self._estimate(runner, ids)
        return self.statistics

    def _estimate(self, runner: Runner, ids: Sequence[int]) -> None:
        model = runner.model
        if not self.num_images or not batch_norms(model):
            return
        runner.logger.info(
            f'Estimating batch norm statistics of {len(ids)} stitches on '
            f'{self.num_images} images (config key: '
            'default_hooks.stitch_statistics.num_images, 0 for none).'
        )
        backbone = find_stitched_backbone(model)
        drawn = backbone.input_size
        with isolated_rng(runner.seed):
            set_input_size(model, None)  # as images are tested
            try:
                batches = self._batches(runner)
                if self.mode is None:
                    data = runner.train_dataloader, runner.seed
                    costs = cost_table(model, size_of_images(model, *data))
                    self.mode = forward_mode(model, costs.scope)
                self.statistics = recalibrate_bn(model, batches, ids, self.mode)
            except Exception as error:  # no reason to lose a training
                if get_world_size() > 1:
                    raise  # the other processes wait for this one
                why = f'not estimated: {type(error).__name__}: {error}'
                runner.logger.warning(f'Batch norm statistics of stitches {why}')
            finally:
                set_input_size(model, drawn)

    def _batches(self, runner: Runner) -> Iterator[dict]:
        loader, ranks = runner.train_dataloader, get_world_size()
        # As many on every rank, and as large.
        share = len(loader.dataset) // ranks
        size = min(loader.batch_size or 1, share) or 1
        number = min(math.ceil(self.num_images / size / ranks), share // size) or 1
        return random_batches(loader, runner.seed, number * size * ranks)


def forward_mode(model: nn.Module, scope: str | None) -> str:
    """Return the mode of mm's forward that reaches all norms, by the scope of costs."""
    # Heads that images alone do not reach see what they need in this mode only.
    return 'predict' if rule_for(unwrapped(model), FORWARDS) or scope else 'tensor'


def statistics_hook(runner: Runner) -> StitchStatisticsHook | None:
    """Return the hook of a runner that holds the statistics of stitches."""
    return next((h for h in runner.hooks if isinstance(h, StitchStatisticsHook)), None)


def recalibrated(
    runner: Runner, number: int, ids: Sequence[int], scope: str | None
) -> Statistics:
    """Estimate the statistics of stitches anew, on so many training images."""
    train_cfg = runner.cfg.get('train_dataloader')
    allowed = 'training images, to recalibrate batch norm with'
    check(train_cfg, 'train_dataloader', train_cfg, allowed)
    train = Runner.build_dataloader(train_cfg, seed=runner.seed)
    runner.logger.info(
        f'Recalibrating batch norm for {len(ids)} stitches on {number} images'
    )
    together = (train.batch_size or 1) * get_world_size()
    batches = islice(train, math.ceil(number / together))
    return recalibrate_bn(runner.model, batches, ids, forward_mode(runner.model, scope))


@contextmanager
def own_statistics(
    runner: Runner, ids: Iterable[int], statistics: Statistics | None = None
) -> Iterator[None]:
    """Let stitches run with statistics of their own, by default those of a hook."""
    model, hook = runner.model, statistics_hook(runner)
    if statistics is None and hook is not None:
        statistics = hook.of(runner, ids)
        if hook.num_images and not statistics and batch_norms(model):
            runner.logger.warning(
                'The weights came without batch norm statistics of each stitch, as '
                'from a checkpoint before the last: all run with mixed ones (option: '
                '--recalibrate-bn)'
            )
    norms = attach_statistics(model, statistics)
    if norms is None:
        yield
        return
    own = sorted(norms.statistics.keys() & {*ids})
    runner.logger.info(
        f'{len(own)} of {len({*ids})} stitches have batch norm statistics of their '
        'own, the others mixed ones (config key: '
        'default_hooks.stitch_statistics.num_images, 0 for none).'
    )
    try:
        yield
    finally:
        norms.detach()
