from __future__ import annotations

import math
import os
from collections.abc import Sequence

from mmengine.dist import broadcast_object_list
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper, OptimWrapperDict
from mmengine.registry import HOOKS, TASK_UTILS
from mmengine.runner import Runner

from snnet_mm.evaluation import cost_table
from snnet_mm.models import find_stitched_backbone, gathered, set_stitches
from snnet_mm.stitching import CostTable, Stitch
from snnet_mm.utils import check, register, shared_seed

FINGERPRINT = 'stitch_costs'


@register(HOOKS)
class StitchSamplingHook(Hook):
    """Activates another stitch before every optimizer step.

    Iterations whose gradients are accumulated train one stitch. A sampler that draws
    several for one iteration needs a model that trains several, such as a
    ``SandwichWrapper``. The log shows ``stitch_gflops``, the GFLOPs of all stitches of
    the iteration. Hooks of the sampler are registered when training begins.

    Args:
        sampler: Config of the sampler; its seed is that of the run by default.
        input_size: Height and width that costs are counted at; by default the fixed
            size of the model's data preprocessor.
        costs: A ``costs.json`` of ``tools/analysis_tools/stitch_table.py``, for
            samplers that go by what was measured on a device, such as ROS with
            ``cost='latency', step=5``: groups of 5 ms. By default FLOPs and parameters
            are counted.

    Attributes:
        sampler: The sampler, from the beginning of training.
        stitches: The stitches of this iteration, by the role that prefixes the names of
            their losses; a single one has the role ``''``.
    """

    priority = 'VERY_HIGH'
    stitched_only = True  # a stitch exported alone has no work for it

    def __init__(
        self,
        sampler: dict,
        input_size: Sequence[int] | None = None,
        costs: str | os.PathLike | None = None,
    ) -> None:
        typed = isinstance(sampler, dict) and 'type' in sampler
        wanted = 'a dict with a type, such as ResourceConstrainedSampler'
        check(typed, 'StitchSamplingHook.sampler', sampler, wanted)
        self._sampler_cfg, self._input_size = sampler, input_size
        self._costs_file = costs
        self.stitches: dict[str, Stitch] = {}

    def before_train(self, runner: Runner) -> None:
        """Get the costs of all stitches and build the sampler.

        Parts of the model that have a method ``check_space(space)`` are asked first
        whether they fit the stitching space.
        """
        space = find_stitched_backbone(runner.model).space
        for module in runner.model.modules():
            if hasattr(type(module), 'check_space'):
                module.check_space(space)
        costs, unknown = self._count(runner)
        if self._costs_file is not None:
            costs = self._read_costs(runner, costs)
        defaults = dict(costs=costs, seed=shared_seed(runner.seed), space=space)
        try:
            self.sampler = TASK_UTILS.build(self._sampler_cfg, default_args=defaults)
        except ValueError as error:
            if unknown is None:
                raise
            raise ValueError(f'{error}. Costs are not known: {unknown}') from error
        for hook in self.sampler.hooks():
            runner.register_hook(hook)

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict | None = None
    ) -> None:
        """Activate the stitch of this iteration, or hand over its stitches."""
        step = runner.iter // accumulative_counts(runner.optim_wrapper)
        ids = self.sampler.sample(step)
        self.stitches = set_stitches(runner.model, ids)
        if (costs := self.sampler.costs) is not None:
            gflops = sum(costs[i].flops for i in ids) / 1e9
            runner.message_hub.update_scalar('train/stitch_gflops', gflops)

    def _count(self, runner: Runner) -> tuple[CostTable | None, ValueError | None]:
        """Count costs, or return why a sampler must do without."""
        try:
            with gathered(runner.model):
                return cost_table(runner.model, self._input_size), None
        except ValueError as error:
            if self._input_size is not None or self._costs_file is not None:
                raise
            runner.logger.warning(f'Stitches are sampled without costs: {error}')
            return None, error

    def _read_costs(self, runner: Runner, counted: CostTable) -> CostTable:
        """Read saved costs; measured ones are never measured again.

        A second measurement would differ, and so would the draws of a resumed run or
        of another rank.
        """
        key = 'StitchSamplingHook.costs'
        saved = CostTable.read(self._costs_file)
        saved.check_same_model(counted, f'{self._costs_file} (config key: {key})')
        of_rank_0 = [saved.fingerprint]
        broadcast_object_list(of_rank_0)
        info = runner.message_hub.runtime_info
        for where, wanted in (
            ('on rank 0', of_rank_0[0]),
            ('in the run that is resumed', info.get(FINGERPRINT, of_rank_0[0])),
        ):
            same = saved.fingerprint == wanted
            check(same, key, str(self._costs_file), f'a file with the costs {where}')
        runner.message_hub.update_info(FINGERPRINT, saved.fingerprint)
        return saved


def sampling_hook(runner: Runner) -> StitchSamplingHook | None:
    """Return the hook of a runner that samples stitches, or None if it has none."""
    hooks = (hook for hook in runner.hooks if isinstance(hook, StitchSamplingHook))
    return next(hooks, None)


def accumulative_counts(optim_wrapper: OptimWrapper | OptimWrapperDict) -> int:
    """Return the iterations from one step to the next that all optimizers share."""
    if isinstance(optim_wrapper, OptimWrapperDict):
        return math.lcm(*map(accumulative_counts, optim_wrapper.values()))
    return optim_wrapper._accumulative_counts
