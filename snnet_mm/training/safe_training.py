"""Loop validation and exact resuming for the training of any config."""

from collections.abc import Iterator, Mapping

from mmengine.dist import get_rank
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from snnet_mm.utils import check, is_whole, register, seed_everything

LEAST = dict(max_iters=1, max_epochs=1, val_interval=1, val_begin=0)


def check_loop(train_cfg: Mapping | None) -> None:
    """Raise if a length or validation setting is too small or not whole."""
    for key, least in LEAST.items():
        if (value := (train_cfg or {}).get(key)) is not None:
            allowed = f'whole numbers from {least} on'
            check(is_whole(value, least), f'train_cfg.{key}', value, allowed)


# Keeps the seeds of iterations and of samples apart.
ITERATIONS = 0


@register(HOOKS)
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
