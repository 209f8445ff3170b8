from __future__ import annotations

from collections.abc import Sequence

from mmengine.hooks import Hook
from mmengine.registry import HOOKS, TASK_UTILS
from mmengine.runner import Runner

from snnet_mm.analysis import cost_table
from snnet_mm.models import set_stitch
from snnet_mm.utils import shared_seed

from ..accumulation import accumulative_counts

HISTOGRAM = 'stitch_histogram'


@HOOKS.register_module()
class StitchSamplingHook(Hook):
    """Activates another stitch before every optimizer step.

    That is every training iteration, or one stitch for all iterations whose gradients
    are accumulated (config key: ``optim_wrapper.accumulative_counts``).

    The log shows ``stitch_gflops``, the GFLOPs of the sampled stitch. Visualisation
    backends get the loss of each cost group, ``loss_by_gflops/<mean of the group>``.
    How often each stitch was sampled is kept in the message hub as
    ``stitch_histogram``, which checkpoints hold, and logged by group after training.

    Args:
        sampler: Config of the sampler; its seed is that of the run by default.
        input_size: Height and width that costs are counted at; by default the fixed
            size of the model's data preprocessor.
    """

    priority = 'VERY_HIGH'

    def __init__(self, sampler: dict, input_size: Sequence[int] | None = None) -> None:
        self._sampler_cfg = sampler
        self._input_size = input_size

    def before_train(self, runner: Runner) -> None:
        """Count the costs of all stitches and build the sampler."""
        self._costs = cost_table(runner.model, self._input_size)
        defaults = dict(costs=self._costs, seed=shared_seed(runner.seed))
        self.sampler = TASK_UTILS.build(self._sampler_cfg, default_args=defaults)
        self._group_names = {
            stitch_id: self._name_of(group)
            for group in self.sampler.groups
            for stitch_id in group
        }
        self._histogram = dict(runner.message_hub.runtime_info.get(HISTOGRAM, {}))

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict | None = None
    ) -> None:
        """Activate the stitch of this iteration."""
        step = runner.iter // accumulative_counts(runner.optim_wrapper)
        (stitch_id,) = self.sampler.sample(step)
        set_stitch(runner.model, stitch_id)
        self._active = stitch_id
        self._histogram[stitch_id] = self._histogram.get(stitch_id, 0) + 1
        hub = runner.message_hub
        hub.update_info(HISTOGRAM, self._histogram)
        hub.update_scalar('train/stitch_gflops', self._costs[stitch_id].flops / 1e9)

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: dict | None = None,
    ) -> None:
        """Log the loss under the cost group of the stitch."""
        if outputs is not None and 'loss' in outputs:
            name = f'loss_by_gflops/{self._group_names[self._active]}'
            loss = outputs['loss'].item()
            runner.visualizer.add_scalar(name, loss, step=runner.iter + 1)

    def after_train(self, runner: Runner) -> None:
        """Log how often each cost group was sampled."""
        counts = ', '.join(
            f'{self._name_of(group)} G: {sum(self._histogram.get(i, 0) for i in group)}'
            for group in self.sampler.groups
        )
        runner.logger.info(f'Sampled stitches by mean GFLOPs of their group: {counts}')

    def _name_of(self, group: Sequence[int]) -> str:
        """Mean GFLOPs of a cost group."""
        return f'{sum(self._costs[i].flops for i in group) / len(group) / 1e9:.3g}'
