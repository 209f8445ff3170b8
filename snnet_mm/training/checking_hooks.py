"""Hooks that stop a run whose weights or losses are not finite."""

import math

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from snnet_mm.models import unwrapped
from snnet_mm.utils import check, is_whole
from snnet_mm.utils.checkpoints import non_finite

from .stitch_checkpoint_hook import diverged


class WeightCheckHook(Hook):
    """Raises before a test if weights are not finite, however they were loaded."""

    def before_test(self, runner: Runner) -> None:
        if key := non_finite(unwrapped(runner.model).state_dict()):
            raise ValueError(
                f'the checkpoint holds {key} that is not finite: the training '
                'diverged, or the file is damaged (argument: checkpoint)'
            )


@HOOKS.register_module()
class LossCheckHook(Hook):
    """Stops a training whose loss is not finite, before a checkpoint is written.

    mmengine's ``RuntimeInfoHook`` copies every loss from the device to the message hub,
    where this hook reads it: no further synchronisation is needed.

    Args:
        patience: Number of consecutive iterations with a non-finite loss that stop the
            training. A single one may pass: mixed precision skips its step. Default: 5.
    """

    def __init__(self, patience: int = 5) -> None:
        check(is_whole(patience, 1), 'patience', patience, 'a whole number from 1')
        self.patience, self.count = patience, 0

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: dict | None = None,
    ) -> None:
        logged = runner.message_hub.log_scalars
        names = [name for name in outputs or () if 'loss' in name]
        values = [
            logged[f'train/{n}'].current() for n in names if f'train/{n}' in logged
        ]
        wrong = [value for value in values if not math.isfinite(value)]
        self.count = self.count + 1 if wrong else 0
        if self.count == 1:
            runner.logger.warning(f'loss={wrong[0]} at iteration {runner.iter + 1}.')
        if self.count == self.patience:
            first, last = runner.iter + 2 - self.patience, runner.iter + 1
            raise diverged(runner, f'loss={wrong[0]} at iterations {first} to {last}')
