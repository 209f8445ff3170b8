"""Sampling and ranking of stitches by importance for the task (ESTA, section 4.2)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from mmengine.dist import all_reduce
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapperDict
from mmengine.registry import TASK_UTILS
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.optim import Optimizer

from snnet_mm.costs.parts import parameters_by_part, parts_of
from snnet_mm.evaluation import as_text, stitch_table
from snnet_mm.models import find_stitched_backbone
from snnet_mm.stitching import Stitch, StitchTable, know_metrics, split_cost_range
from snnet_mm.training import StitchSampler
from snnet_mm.training.stitch_hooks import sampling_hook
from snnet_mm.utils import check, is_number, is_whole

# Ranking metric: the paper deploys the most important stitch of each cost interval.
DEPLOYMENT = 'deployment'
IMPORTANCE = 'importance'
# Scores of older runs do not include metric directions.
know_metrics(higher=(DEPLOYMENT, IMPORTANCE))
SCORES = 'stitch_scores'
SCORES_FILE = 'stitch_scores.json'


@TASK_UTILS.register_module()
class ImportanceSampler(StitchSampler):
    """Draws a cost interval, then a stitch in it by importance (ESTA, section 4.2).

    The score of a stitch is the moving average of its saliency over the steps that
    trained it (equation 3), initialised with the first saliency. Within an interval,
    stitches are drawn by the softmax of their scores; a stitch without a score uses
    the mean of the others. All ranks draw the same stitch, as gradients averaged over
    different stitches cannot score any of them.

    Args:
        warm_up: Number of initial scored steps that draw every stitch equally often; at
            least 1, as no stitch has a score before.
        num_groups: Number of cost intervals. Default: 15.
        momentum: Weight of the old score in the new one, from 0 to below 1.
    """

    def __init__(
        self,
        costs: StitchTable,
        warm_up: int,
        num_groups: int = 15,
        momentum: float = 0.9,
        **kwargs,
    ) -> None:
        super().__init__(costs, **kwargs)
        check(is_whole(warm_up, 1), 'sampler.warm_up', warm_up, '1 step or more')
        right = is_number(momentum) and 0 <= momentum < 1
        check(right, 'sampler.momentum', momentum, 'a number in [0, 1)')
        check(not self.per_rank, 'sampler.per_rank', self.per_rank, 'False')
        self.warm_up, self.momentum, self.num_groups = warm_up, momentum, num_groups
        self.groups = split_cost_range(self.flops(), num_groups)
        self.scores: dict[int, float] = {}
        self.num_scored_steps = 0

    def hooks(self) -> list[Hook]:
        return [ImportanceHook(self)]

    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        if self.num_scored_steps < self.warm_up:
            return (self.ids[rng.integers(len(self.ids))],)
        group = self.groups[rng.integers(len(self.groups))]
        return (group[rng.choice(len(group), p=self.probabilities(group))],)

    def probabilities(self, group: Sequence[int]) -> np.ndarray:
        """Return the softmax of the scores of the stitches in an interval."""
        known = [self.scores[i] for i in group if i in self.scores]
        mean = sum(known) / len(known) if known else 0.0
        return _softmax([self.scores.get(i, mean) for i in group])

    def record(self, saliency: Mapping[int, float]) -> None:
        """Update the moving averages with the saliency measured in one step."""
        for stitch_id, new in saliency.items():
            old = self.scores.get(stitch_id, new)
            self.scores[stitch_id] = self.momentum * old + (1 - self.momentum) * new
        self.num_scored_steps += 1

    def state_dict(self) -> dict:
        """Return the state required to resume training."""
        return dict(scores=dict(self.scores), num_scored_steps=self.num_scored_steps)

    def load_state_dict(self, state: Mapping) -> None:
        """Restore a state returned by :meth:`state_dict`."""
        self.scores = dict(state['scores'])
        self.num_scored_steps = state['num_scored_steps']


class ImportanceHook(Hook):
    """Updates the scores of stitches with their saliency in each optimizer step.

    Gradients are read right before the optimizer step: averaged over ranks and
    accumulated iterations, clipped and without AMP's scale. Steps that AMP skips score
    nothing. If a step trains several stitches, parameters they share have the gradients
    of all; the paper does not specify this case. Scores are stored in the message hub
    as ``stitch_scores``, and saved with checkpoints to ``stitch_scores.json``; see
    :func:`importance_results`.
    """

    def __init__(self, sampler: ImportanceSampler) -> None:
        self.sampler = sampler
        self.trained: Sequence[Stitch] = ()  # the stitches of the next step

    def before_train(self, runner: Runner) -> None:
        wrapper, model = runner.optim_wrapper, runner.model
        single = not isinstance(wrapper, OptimWrapperDict)
        expected = 'a single optimizer, whose steps score the importance of stitches'
        check(single, 'optim_wrapper.type', type(wrapper).__name__, expected)
        self._parameters = cache(lambda stitch: trained_parameters(model, stitch))
        self._listening = wrapper.optimizer.register_step_pre_hook(self._score)
        state = runner.message_hub.runtime_info.get(SCORES)
        if state is not None:
            self.sampler.load_state_dict(state)

    def before_train_iter(self, runner: Runner, **_) -> None:
        self.trained = list(sampling_hook(runner).stitches.values())

    def after_train_iter(self, runner: Runner, **_) -> None:
        if self.sampler.scores:
            runner.message_hub.update_info(SCORES, self.sampler.state_dict())

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        if self.sampler.scores:
            self._results().save(Path(runner.work_dir) / SCORES_FILE)

    def after_train(self, runner: Runner) -> None:
        self._listening.remove()
        if self.sampler.scores:  # none if AMP skipped every step
            results = self._results()
            table = as_text(stitch_table(replace(results, rows=results.front())))
            runner.logger.info(f'The most important stitches, to be deployed:\n{table}')

    def _results(self) -> StitchTable:
        own = self.sampler
        return importance_results(own.costs, own.scores, own.num_groups)

    def _score(self, optimizer: Optimizer, *_) -> None:
        values = torch.stack([saliency(self._parameters(s)) for s in self.trained])
        # A fused optimizer receives scaled gradients and unscales them on its own.
        scale = getattr(optimizer, 'grad_scale', None)
        values = values if scale is None else values / scale
        # Ranks already agree, except on different hardware.
        all_reduce(values, 'mean')
        if values.isfinite().all():
            ids = [stitch.id for stitch in self.trained]
            self.sampler.record(dict(zip(ids, values.tolist(), strict=True)))


@torch.no_grad()
def saliency(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Return the sum of ``|g w|`` over parameters ``w`` with gradient ``g`` (SNIP)."""
    trained = [p for p in parameters if p.grad is not None]
    keys = 'backbone.anchors.frozen_stages, lora, stitching_layer'
    expected = 'settings that leave every stitch a trainable parameter'
    check(trained, keys, 'no gradient', expected)
    products = torch._foreach_mul([p.grad for p in trained], trained)
    return torch.stack(torch._foreach_norm(products, 1)).sum()


def trained_parameters(model: nn.Module, stitch: Stitch) -> list[nn.Parameter]:
    """Return the trained parameters a stitch runs, excluding ``idle_parameters``."""
    backbone = find_stitched_backbone(model)
    by_part = parameters_by_part(backbone)
    run = {id(p) for part in parts_of(backbone, stitch) for p in by_part[part]}
    idle = {id(p) for parameters in by_part.values() for p in parameters} - run
    for module in model.modules():
        if hasattr(type(module), 'idle_parameters'):
            idle |= {id(p) for p in module.idle_parameters(stitch)}
    return [p for p in model.parameters() if p.requires_grad and id(p) not in idle]


def importance_results(
    costs: StitchTable, scores: Mapping[int, float], num_groups: int = 15
) -> StitchTable:
    """Convert scores by stitch id to results, by which stitches can be selected.

    The ranking metric, ``'deployment'``, is ``n`` for the most important stitch of the
    n-th cost interval. For other stitches of the interval it lies between ``n - 2`` and
    ``n - 1``. Scores of different intervals are not comparable.
    """
    metrics = {}
    groups = split_cost_range(costs.column('flops'), num_groups)
    for n, group in enumerate(groups, start=1):
        scored = [i for i in group if i in scores]
        best = max(scored, key=lambda i: (scores[i], -i), default=None)
        for i, share in zip(scored, _softmax([scores[i] for i in scored]), strict=True):
            place = n if i == best else n - 2 + share
            metrics[i] = {DEPLOYMENT: place, IMPORTANCE: scores[i]}
    return costs.with_metrics(dict(sorted(metrics.items())))


def _softmax(scores: Sequence[float]) -> np.ndarray:
    return torch.tensor(scores, dtype=torch.float64).softmax(0).numpy()
