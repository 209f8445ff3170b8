"""Sampling stitches by their importance for the task (ESTA)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from mmengine.hooks import Hook
from mmengine.registry import TASK_UTILS

from snnet_mm.engine import StitchSampler
from snnet_mm.stitching import CostTable
from snnet_mm.utils import check, is_number, is_whole, register


@register(TASK_UTILS)
class ImportanceSampler(StitchSampler):
    """Draws a cost interval, then a stitch in it by importance (ESTA, section 4.2).

    The score of a stitch is the moving average of its saliency in the steps that
    trained it (equation 3), beginning with the first one. Within an interval, stitches
    are drawn by the softmax of their scores; one without a score counts as the mean of
    the others. The paper does not say how scores begin.

    Draws depend on the seed, the iteration and the scores, which ranks share and
    checkpoints hold; see :class:`ImportanceHook`. Ranks cannot draw stitches of their
    own, as the gradients of several stitches score none of them.

    Args:
        costs: Costs of the stitches to draw from.
        warm_up: Scored steps at the beginning, in which every stitch is drawn equally
            often; at least 1, as no stitch has a score before.
        num_groups: Number of intervals: equal parts of the cost range.
        momentum: Share of the old score in the new one, from 0 to below 1.
        cost: The cost that intervals are formed by; see
            :class:`snnet_mm.engine.ResourceConstrainedSampler`.
        **kwargs: See :class:`snnet_mm.engine.StitchSampler`.
    """

    def __init__(
        self,
        costs: CostTable,
        warm_up: int,
        num_groups: int = 15,
        momentum: float = 0.9,
        cost: str = 'flops',
        **kwargs,
    ) -> None:
        super().__init__(costs, **kwargs)
        check(is_whole(warm_up, 1), 'sampler.warm_up', warm_up, '1 step or more')
        share = is_number(momentum) and 0 <= momentum < 1
        check(share, 'sampler.momentum', momentum, '0 to below 1')
        check(not self.per_rank, 'sampler.per_rank', self.per_rank, 'False')
        self.warm_up, self.momentum = warm_up, momentum
        self.num_groups, self.cost = num_groups, cost
        self.groups = self.split(num_groups, cost)
        self.scores: dict[int, float] = {}
        self.num_scored_steps = 0

    def hooks(self) -> list[Hook]:
        """See :meth:`snnet_mm.engine.StitchSampler.hooks`."""
        from .importance_hook import ImportanceHook  # which needs this class

        return [ImportanceHook(self)]

    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        """See :meth:`snnet_mm.engine.StitchSampler.draw`."""
        if self.num_scored_steps < self.warm_up:
            return (self.ids[rng.integers(len(self.ids))],)
        group = self.groups[rng.integers(len(self.groups))]
        return (group[rng.choice(len(group), p=self.probabilities(group))],)

    def probabilities(self, group: Sequence[int]) -> np.ndarray:
        """Return the softmax of the scores of an interval's stitches."""
        known = [self.scores[i] for i in group if i in self.scores]
        mean = sum(known) / len(known) if known else 0.0
        scores = np.array([self.scores.get(i, mean) for i in group])
        shares = np.exp(scores - scores.max())
        return shares / shares.sum()

    def record(self, saliency: Mapping[int, float]) -> None:
        """Take in the saliency of the stitches that a step trained, by stitch id."""
        for stitch_id, new in saliency.items():
            old = self.scores.get(stitch_id, new)
            self.scores[stitch_id] = self.momentum * old + (1 - self.momentum) * new
        self.num_scored_steps += 1

    def state_dict(self) -> dict:
        """Return the scores, by which a resumed training draws the same stitches."""
        return dict(scores=dict(self.scores), num_scored_steps=self.num_scored_steps)

    def load_state_dict(self, state: Mapping) -> None:
        """Take over the scores that :meth:`state_dict` gave."""
        self.scores = dict(state['scores'])
        self.num_scored_steps = state['num_scored_steps']
