from __future__ import annotations

from collections.abc import Iterator

from mmengine.dist import get_rank
from mmengine.hooks import CheckpointHook, Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from snnet_mm.utils import register, seed_everything

from .stitch_sampling_hook import accumulative_counts

# Keeps the seeds of iterations apart from those of samples.
ITERATIONS = 0


@register(HOOKS)
class ExactResumeHook(Hook):
    """Seeds every training iteration, so that resumed training goes on exactly.

    Draws of an iteration (drop path, dropout) then depend on the seed, the iteration
    and the rank alone. ``SeededSampler`` and ``SeededDataset`` seed the samples; the
    log tells what makes a resumed training another one.
    """

    priority = 'HIGHEST'

    def before_train(self, runner: Runner) -> None:
        """Warn of settings that make a resumed training another one."""
        for reason in _inexact_settings(runner):
            runner.logger.warning(f'A resumed training will not be exact: {reason}.')

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict | None = None
    ) -> None:
        """Seed this iteration."""
        seed_everything(runner.seed, ITERATIONS, runner.iter, get_rank())


def _inexact_settings(runner: Runner) -> Iterator[str]:
    if runner.cfg.get('randomness', {}).get('seed') is None:
        yield 'every start draws another seed (config key: randomness.seed)'
    loader = runner.train_dataloader
    sampler = getattr(loader.batch_sampler, 'sampler', loader.sampler)
    if not getattr(sampler, 'seeds_samples', False):
        yield (
            f'{type(sampler).__name__} seeds no augmentation, SeededSampler does '
            '(config key: train_dataloader.sampler)'
        )
    counts = accumulative_counts(runner.optim_wrapper)
    for hook in runner.hooks:
        by_iter = isinstance(hook, CheckpointHook) and not hook.by_epoch
        if by_iter and hook.interval > 0 and hook.interval % counts:
            yield (
                f'checkpoints every {hook.interval} iterations fall between two steps, '
                f'as gradients of {counts} are accumulated (config keys: '
                'default_hooks.checkpoint.interval, optim_wrapper.accumulative_counts)'
            )
