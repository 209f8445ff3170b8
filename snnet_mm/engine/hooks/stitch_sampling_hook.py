from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mmengine.dist import broadcast_object_list
from mmengine.hooks import Hook
from mmengine.registry import HOOKS, TASK_UTILS
from mmengine.runner import Runner
from torch import Tensor

from snnet_mm.evaluation import as_text, cost_table, stitch_table
from snnet_mm.models import find_stitched_backbone, set_stitches
from snnet_mm.stitching import CostTable, StitchResults, importance_results
from snnet_mm.utils import atomic_path, shared_seed

from ..accumulation import accumulative_counts
from ..saliency import SaliencyScorer

HISTOGRAM = 'stitch_histogram'
SCORES = 'stitch_scores'
SCORES_FILE = 'stitch_scores.json'
FINGERPRINT = 'stitch_costs'


@HOOKS.register_module()
class StitchSamplingHook(Hook):
    """Activates another stitch before every optimizer step.

    That is every training iteration, or one stitch for all iterations whose gradients
    are accumulated (config key: ``optim_wrapper.accumulative_counts``). A sampler that
    draws several stitches for one iteration needs a model that trains several, such as
    a ``SandwichWrapper``.

    The log shows ``stitch_gflops``, the GFLOPs of all stitches of the iteration.
    Visualisation backends get the loss of each cost group, ``loss_by_gflops/<mean of
    the group>``. How often each stitch was sampled is kept in the message hub as
    ``stitch_histogram``, which checkpoints hold, and logged by group after training.

    For a sampler that goes by importance, such as ``ImportanceSampler``, every
    optimizer step is scored; see :class:`SaliencyScorer`. Visualisation backends get
    the score of each trained stitch, ``importance_by_gflops/<mean of the group>``. The
    scores are kept in the message hub as ``stitch_scores``, and with every checkpoint
    ``stitch_scores.json`` is written to the work directory, by which stitches can be
    chosen without an evaluation; see :func:`snnet_mm.stitching.importance_results`.

    Args:
        sampler: Config of the sampler; its seed is that of the run by default.
        input_size: Height and width that costs are counted at; by default the fixed
            size of the model's data preprocessor.
        costs: A ``costs.json`` of ``tools/analysis_tools/stitch_table.py``, for
            samplers that go by what was measured on a device, such as
            ``sampler=dict(type='ResourceConstrainedSampler', cost='latency',
            step=5)``: groups of 5 ms. By default FLOPs and parameters are counted.

    Raises:
        ValueError: If the sampler is no config.
    """

    priority = 'VERY_HIGH'

    stitched_only = True  # a stitch exported alone has no work for it

    def __init__(
        self,
        sampler: dict,
        input_size: Sequence[int] | None = None,
        costs: str | os.PathLike | None = None,
    ) -> None:
        if not isinstance(sampler, dict) or 'type' not in sampler:
            raise ValueError(
                f'sampler={sampler!r}; wanted is a dict with a type, such as '
                'ResourceConstrainedSampler (config key: StitchSamplingHook.sampler)'
            )
        self._sampler_cfg = sampler
        self._input_size = input_size
        self._costs_file = costs
        self._scorer: SaliencyScorer | None = None

    def before_train(self, runner: Runner) -> None:
        """Get the costs of all stitches and build the sampler.

        Parts of the model that have a method ``check_space(space)`` are asked first
        whether they fit the stitching space.

        Raises:
            ValueError: If a part does not, the file of costs cannot be read, is of
                another model or input size, is not the same on all ranks, or is not the
                one that the run to be resumed began with.
        """
        space = find_stitched_backbone(runner.model).space
        for module in runner.model.modules():
            if hasattr(type(module), 'check_space'):
                module.check_space(space)
        self._costs = cost_table(runner.model, self._input_size)
        if self._costs_file is not None:
            self._costs = self._read_costs(runner)
        seed = shared_seed(runner.seed)
        defaults = dict(costs=self._costs, seed=seed, space=space)
        self.sampler = TASK_UTILS.build(self._sampler_cfg, default_args=defaults)
        self._group_names = {
            stitch_id: self._name_of(group)
            for group in self.sampler.groups
            for stitch_id in group
        }
        self._histogram = dict(runner.message_hub.runtime_info.get(HISTOGRAM, {}))
        self._space = space
        if self.sampler.scorer is not None:
            self._start_scoring(runner)

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict | None = None
    ) -> None:
        """Activate the stitch of this iteration, or hand over its stitches.

        Raises:
            ValueError: If there are several and the model trains one at a time.
        """
        step = runner.iter // accumulative_counts(runner.optim_wrapper)
        ids = self.sampler.sample(step)
        self._roles = set_stitches(runner.model, ids)
        if self._scorer is not None:
            self._scorer.trained = list(self._roles.values())
        for stitch_id in ids:
            self._histogram[stitch_id] = self._histogram.get(stitch_id, 0) + 1
        hub = runner.message_hub
        hub.update_info(HISTOGRAM, self._histogram)
        gflops = sum(self._costs[i].flops for i in ids) / 1e9
        hub.update_scalar('train/stitch_gflops', gflops)

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: dict | None = None,
    ) -> None:
        """Log the loss, and the score, of every stitch under its cost group."""
        scores = {} if self._scorer is None else self._scorer.sampler.scores
        for role, stitch in self._roles.items():
            for what, value in (
                ('loss', _loss_of(role, outputs or {})),
                ('importance', scores.get(stitch.id)),
            ):
                if value is not None:
                    name = f'{what}_by_gflops/{self._group_names[stitch.id]}'
                    runner.visualizer.add_scalar(name, value, step=runner.iter + 1)
        if scores:
            state = self._scorer.sampler.state_dict()
            runner.message_hub.update_info(SCORES, state)

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Write the scores of this moment beside the checkpoint."""
        if self._scorer is not None and self._scorer.sampler.scores:
            with atomic_path(Path(runner.work_dir) / SCORES_FILE) as temporary:
                temporary.write_text(json.dumps(self._results().to_dict(), indent=1))

    def after_train(self, runner: Runner) -> None:
        """Log how often each cost group was sampled, and what was most important."""
        counts = ', '.join(
            f'{self._name_of(group)} G: {sum(self._histogram.get(i, 0) for i in group)}'
            for group in self.sampler.groups
        )
        runner.logger.info(f'Sampled stitches by mean GFLOPs of their group: {counts}')
        if self._scorer is None:
            return
        self._scorer.remove()
        if self._scorer.sampler.scores:  # none if AMP skipped every step
            results = self._results()
            front = set(results.front())
            chosen = [r for r in results.stitches if r.id in front]
            table = as_text(stitch_table(replace(results, stitches=chosen)))
            runner.logger.info(f'The most important stitches, to be deployed:\n{table}')

    def _start_scoring(self, runner: Runner) -> None:
        scorer = self.sampler.scorer
        self._scorer = SaliencyScorer(runner.model, runner.optim_wrapper, scorer)
        state = runner.message_hub.runtime_info.get(SCORES)
        if state is not None:
            scorer.load_state_dict(state)

    def _results(self) -> StitchResults:
        """The scores in the form of results."""
        s = self._scorer.sampler
        kwargs = dict(num_groups=s.num_groups, cost=s.cost)
        return importance_results(self._space, self._costs, s.scores, **kwargs)

    def _read_costs(self, runner: Runner) -> CostTable:
        """The saved costs; measured ones are never measured again.

        A second measurement would differ, and so would the draws of a resumed run or
        of another rank.
        """
        saved = CostTable.read(self._costs_file)
        key = '(config key: StitchSamplingHook.costs)'
        saved.check_same_model(self._costs, f'{self._costs_file} {key}')
        of_rank_0 = [saved.fingerprint]
        broadcast_object_list(of_rank_0)
        info = runner.message_hub.runtime_info
        for where, wanted in (
            ('on rank 0', of_rank_0[0]),
            ('in the run that is resumed', info.get(FINGERPRINT, of_rank_0[0])),
        ):
            if saved.fingerprint != wanted:
                raise ValueError(
                    f'{self._costs_file} holds other costs than {where}, so that other '
                    f'stitches would be drawn {key}'
                )
        runner.message_hub.update_info(FINGERPRINT, saved.fingerprint)
        return saved

    def _name_of(self, group: Sequence[int]) -> str:
        """Mean GFLOPs of a cost group."""
        return f'{sum(self._costs[i].flops for i in group) / len(group) / 1e9:.3g}'


def _loss_of(role: str, logged: Mapping[str, Tensor]) -> float | None:
    """The loss of one of several stitches, or with no role of the only one."""
    if not role:
        return logged['loss'].item() if 'loss' in logged else None
    own = [v.item() for k, v in logged.items() if k.startswith(role) and 'loss' in k]
    return sum(own) if own else None
