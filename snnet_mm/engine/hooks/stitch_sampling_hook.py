from __future__ import annotations

from collections.abc import Sequence

from mmengine.hooks import Hook
from mmengine.registry import HOOKS, TASK_UTILS
from mmengine.runner import Runner

from snnet_mm.analysis import cost_table
from snnet_mm.models import set_stitch

from ..accumulation import accumulative_counts


@HOOKS.register_module()
class StitchSamplingHook(Hook):
    """Activates another stitch before every optimizer step.

    That is every training iteration, or one stitch for all iterations whose gradients
    are accumulated (config key: ``optim_wrapper.accumulative_counts``).

    Logs the GFLOPs of the sampled stitches as ``stitch_gflops``.

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
        self.sampler = TASK_UTILS.build(
            self._sampler_cfg, default_args=dict(costs=self._costs, seed=runner.seed)
        )

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict | None = None
    ) -> None:
        """Activate the stitch of this iteration."""
        step = runner.iter // accumulative_counts(runner.optim_wrapper)
        (stitch_id,) = self.sampler.sample(step)
        set_stitch(runner.model, stitch_id)
        gflops = self._costs[stitch_id].flops / 1e9
        runner.message_hub.update_scalar('train/stitch_gflops', gflops)
