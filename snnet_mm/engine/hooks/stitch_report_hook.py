from __future__ import annotations

from collections.abc import Mapping

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import Tensor

from snnet_mm.utils import register

from .stitch_sampling_hook import sampling_hook

HISTOGRAM = 'stitch_histogram'


@register(HOOKS)
class StitchReportHook(Hook):
    """Reports which stitches were sampled, and the loss of each cost group.

    Visualisation backends get ``loss_by_gflops/<mean of the group>``. The number of
    times that each stitch was sampled is kept in the message hub as
    ``stitch_histogram``, which checkpoints hold, and logged by group after training.
    """

    stitched_only = True  # see StitchSamplingHook

    def before_train(self, runner: Runner) -> None:
        """Go on with the counts of a run that is resumed."""
        self._sampling = sampling_hook(runner)
        self._histogram = dict(runner.message_hub.runtime_info.get(HISTOGRAM, {}))

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: dict | None = None,
    ) -> None:
        """Count the stitches of the iteration and write their losses."""
        for role, stitch in self._sampling.stitches.items():
            self._histogram[stitch.id] = self._histogram.get(stitch.id, 0) + 1
            write_by_group(runner, 'loss', stitch.id, _loss_of(role, outputs or {}))
        runner.message_hub.update_info(HISTOGRAM, self._histogram)

    def after_train(self, runner: Runner) -> None:
        """Log the counts of all cost groups."""
        sampler = self._sampling.sampler
        if not sampler.groups:
            return
        counts = ', '.join(
            f'{sampler.mean_gflops(group)} G: '
            f'{sum(self._histogram.get(i, 0) for i in group)}'
            for group in sampler.groups
        )
        runner.logger.info(f'Sampled stitches by mean GFLOPs of their group: {counts}')


def write_by_group(
    runner: Runner, name: str, stitch_id: int, value: float | None
) -> None:
    """Give visualisation backends a value of a stitch under its cost group."""
    sampler = sampling_hook(runner).sampler
    if value is None or not sampler.groups:
        return
    group = next(group for group in sampler.groups if stitch_id in group)
    tag = f'{name}_by_gflops/{sampler.mean_gflops(group)}'
    runner.visualizer.add_scalar(tag, value, step=runner.iter + 1)


def _loss_of(role: str, logged: Mapping[str, Tensor]) -> float | None:
    if not role:
        return logged['loss'].item() if 'loss' in logged else None
    own = [v.item() for k, v in logged.items() if k.startswith(role) and 'loss' in k]
    return sum(own) if own else None
