"""Exact resuming for the training of any config."""

from mmengine.dist import get_rank
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from snnet_mm.utils import seed_everything

# Keeps the seeds of iterations and of samples apart.
ITERATIONS = 0


@HOOKS.register_module()
class ExactResumeHook(Hook):
    """Seeds every training iteration, so that a resumed training continues exactly.

    Its weights are those of an uninterrupted one: on CPUs bit for bit, on GPUs up to
    rounding, as some kernels there sum in any order.

    Random draws (drop path, dropout) depend only on the seed, the iteration and the
    rank. Logs a warning if seeds are missing. Checkpoints must be written after steps
    of the optimizer, and after whole epochs in a loop by epoch.
    """

    priority = 'HIGHEST'

    def before_train(self, runner: Runner) -> None:
        warning = 'A resumed training will not be exact: '
        if runner.cfg.get('randomness', {}).get('seed') is None:
            key = 'config key: randomness.seed'
            runner.logger.warning(f'{warning}every start draws another seed ({key}).')
        loader = runner.train_dataloader
        sampler = getattr(loader.batch_sampler, 'sampler', loader.sampler)
        if not getattr(sampler, 'seeds_samples', False):
            runner.logger.warning(
                f'{warning}{type(sampler).__name__} seeds no augmentation, '
                'SeededSampler does (config key: train_dataloader.sampler).'
            )

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict | None = None
    ) -> None:
        seed_everything(runner.seed, ITERATIONS, runner.iter, get_rank())
