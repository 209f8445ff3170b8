"""Checks and parts that make the training of any config safe."""

from collections.abc import Iterator, Mapping

from mmengine.dist import get_rank
from mmengine.hooks import CheckpointHook, Hook
from mmengine.registry import HOOKS
from mmengine.runner import EpochBasedTrainLoop, Runner

from snnet_mm.utils import check, is_whole, register, seed_everything

from .stitch_hooks import accumulative_counts

LEAST = dict(max_iters=1, max_epochs=1, val_interval=1, val_begin=0)


def check_loop(train_cfg: Mapping | None) -> None:
    """Raise for lengths and intervals of a training that would train nothing."""
    for key, least in LEAST.items():
        if (value := (train_cfg or {}).get(key)) is not None:
            allowed = f'whole numbers from {least} on'
            check(is_whole(value, least), f'train_cfg.{key}', value, allowed)


# Keeps the seeds of iterations and of samples apart.
ITERATIONS = 0


@register(HOOKS)
class ExactResumeHook(Hook):
    """Seeds every training iteration, so that resumed training goes on exactly.

    Draws (drop path, dropout) depend on the seed, the iteration and the rank alone. The
    log tells what makes a resumed training another one.
    """

    priority = 'HIGHEST'

    def before_train(self, runner: Runner) -> None:
        for reason in _inexact_settings(runner):
            runner.logger.warning(f'A resumed training will not be exact: {reason}.')

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict | None = None
    ) -> None:
        seed_everything(runner.seed, ITERATIONS, runner.iter, get_rank())


def _inexact_settings(runner: Runner) -> Iterator[str]:
    seed = runner.cfg.get('randomness', {}).get('seed')
    if seed is None:
        yield 'every start draws another seed (config key: randomness.seed)'
    elif seed != runner.seed:  # mmengine takes it over, but not for the data loader
        yield (
            f'images are drawn with seed {seed}, all else with that of the checkpoint, '
            f'{runner.seed} (config key: randomness.seed)'
        )
    loader = runner.train_dataloader
    sampler = getattr(loader.batch_sampler, 'sampler', loader.sampler)
    if not getattr(sampler, 'seeds_samples', False):
        yield (
            f'{type(sampler).__name__} seeds no augmentation, SeededSampler does '
            '(config key: train_dataloader.sampler)'
        )
    counts = accumulative_counts(runner.optim_wrapper)
    epoch = len(loader) if isinstance(runner.train_loop, EpochBasedTrainLoop) else 1
    hooks = (hook for hook in runner.hooks if isinstance(hook, CheckpointHook))
    for interval in (h.interval for h in hooks if not h.by_epoch and h.interval > 0):
        if interval % epoch:
            yield (
                f'checkpoints every {interval} iterations fall into epochs of {epoch}, '
                'which begin anew (config key: default_hooks.checkpoint.by_epoch)'
            )
        if interval % counts:
            yield (
                f'checkpoints every {interval} iterations fall between two steps, as '
                f'gradients of {counts} are accumulated (config keys: '
                'default_hooks.checkpoint.interval, optim_wrapper.accumulative_counts)'
            )
