"""Loop validation and exact resuming for the training of any config."""

from collections.abc import Iterator, Mapping

from mmengine.dist import get_rank
from mmengine.hooks import CheckpointHook, Hook
from mmengine.registry import HOOKS
from mmengine.runner import EpochBasedTrainLoop, Runner

from snnet_mm.utils import check, is_whole, seed_everything

from .stitch_hooks import accumulative_counts

LEAST = dict(max_iters=1, max_epochs=1, val_interval=1, val_begin=0)


def check_loop(train_cfg: Mapping | None) -> None:
    """Raise if a length or validation setting is too small or not whole."""
    for key, least in LEAST.items():
        if (value := (train_cfg or {}).get(key)) is not None:
            allowed = f'a whole number from {least}'
            check(is_whole(value, least), f'train_cfg.{key}', value, allowed)


# Keeps the seeds of iterations and of samples apart.
ITERATIONS = 0


@HOOKS.register_module()
class ExactResumeHook(Hook):
    """Seeds every training iteration, so that a resumed training continues exactly.

    Random draws (drop path, dropout) depend only on the seed, the iteration and the
    rank. Logs a warning for each setting that makes resuming inexact.
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
    loader = runner.train_dataloader
    sampler = getattr(loader.batch_sampler, 'sampler', loader.sampler)
    if not getattr(sampler, 'seeds_samples', False):
        yield (
            f'{type(sampler).__name__} seeds no augmentation, SeededSampler does '
            '(config key: train_dataloader.sampler)'
        )
    loop, counts = runner.train_loop, accumulative_counts(runner.optim_wrapper)
    by_epoch = isinstance(loop, EpochBasedTrainLoop)
    for hook in (h for h in runner.hooks if isinstance(h, CheckpointHook)):
        iters = (hook.interval or 0) * (len(loop.dataloader) if hook.by_epoch else 1)
        if not 0 < iters < loop.max_iters:
            continue
        if by_epoch and not hook.by_epoch:
            yield (
                'it begins at the start of an epoch, checkpoints are written within '
                'epochs (config key: default_hooks.checkpoint.by_epoch)'
            )
        elif hook.by_epoch == by_epoch and iters % counts:
            yield (
                f'checkpoints, every {iters} iterations, drop gradients that '
                f'accumulate over {counts} (config keys: '
                'default_hooks.checkpoint.interval, optim_wrapper.accumulative_counts)'
            )
