"""Sampling stitches by their importance for the task (ESTA)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from mmengine.registry import TASK_UTILS

from snnet_mm.stitching import CostTable, split_cost_range
from snnet_mm.utils import is_number, is_whole

from .samplers import StitchSampler


@TASK_UTILS.register_module()
class ImportanceSampler(StitchSampler):
    """Draws a cost interval, then a stitch in it by importance (ESTA, section 4.2).

    The score of a stitch is the moving average of its saliency in the steps that
    trained it (equation 3), beginning with the first one. Within an interval, stitches
    are drawn by the softmax of their scores; one without a score counts as the mean of
    the others. The paper does not say how scores begin.

    Draws depend on the seed, the iteration and the scores, which ranks share and
    checkpoints hold.

    Args:
        costs: Costs of the stitches to draw from.
        warm_up: Scored steps at the beginning, in which every stitch is drawn equally
            often.
        num_groups: Number of intervals: equal parts of the cost range.
        momentum: Share of the old score in the new one.
        cost: The cost that intervals are formed by; see
            :class:`ResourceConstrainedSampler`.
        **kwargs: See :class:`StitchSampler`.

    Raises:
        ValueError: If there is no warm-up, so that sampling would begin before any
            score, the momentum is not from 0 to below 1, or ranks are to draw stitches
            of their own.
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
        no_score = '1 step or more, as before it no stitch has a score'
        share = is_number(momentum) and 0 <= momentum < 1
        one_stitch = 'False, as the gradients of several stitches score none of them'
        for key, value, allowed, text in (
            ('warm_up', warm_up, is_whole(warm_up, 1), no_score),
            ('momentum', momentum, share, '0 to below 1'),
            ('per_rank', self.per_rank, not self.per_rank, one_stitch),
        ):
            if not allowed:
                raise ValueError(
                    f'{key}={value} of importance sampling; allowed is {text} (config '
                    f'key: sampler.{key})'
                )
        self.warm_up, self.momentum = warm_up, momentum
        self.num_groups, self.cost = num_groups, cost
        self.groups = split_cost_range(costs.column(cost), num_groups)
        self.scores: dict[int, float] = {}
        self.num_scored_steps = 0

    @property
    def scorer(self) -> ImportanceSampler:
        """See :meth:`StitchSampler.scorer`."""
        return self

    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        """See :meth:`StitchSampler.draw`."""
        if self.num_scored_steps < self.warm_up:
            ids = list(self.costs)
            return (ids[rng.integers(len(ids))],)
        group = self.groups[rng.integers(len(self.groups))]
        return (group[rng.choice(len(group), p=self.probabilities(group))],)

    def probabilities(self, group: Sequence[int]) -> np.ndarray:
        """How likely each stitch of an interval is drawn: the softmax of scores."""
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
        """What a resumed training needs to draw the same stitches."""
        return dict(scores=dict(self.scores), num_scored_steps=self.num_scored_steps)

    def load_state_dict(self, state: Mapping) -> None:
        """Take over what :meth:`state_dict` gave."""
        self.scores = dict(state['scores'])
        self.num_scored_steps = state['num_scored_steps']
