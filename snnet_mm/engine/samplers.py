"""Samplers: which stitch each training iteration trains."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod

import numpy as np
from mmengine.dist import get_rank
from mmengine.registry import TASK_UTILS

from snnet_mm.stitching import CostTable, group_by_cost, split_cost_range

NUM_LOGGED_GROUPS = 10
DEFAULT_STEP = 10e9


class StitchSampler(metaclass=ABCMeta):
    """Draws stitches, the same ones for the same seed and iteration.

    Nothing else enters a draw, so that resuming is exact and ranks agree without
    talking.

    Args:
        costs: Costs of the stitches to draw from.
        seed: Seed of the draws.
        per_rank: Whether every rank draws a stitch of its own.
    """

    def __init__(self, costs: CostTable, seed: int = 0, per_rank: bool = False) -> None:
        self.costs, self.seed, self.per_rank = costs, seed, per_rank
        # Cost groups that the log tells apart; some samplers draw by them.
        self.groups = split_cost_range(costs.column('flops'), NUM_LOGGED_GROUPS)

    def sample(self, iteration: int) -> tuple[int, ...]:
        """The stitch ids of an iteration."""
        rank = [get_rank()] if self.per_rank else []
        return self.draw(np.random.default_rng([self.seed, iteration, *rank]))

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Draw one or more stitch ids."""


@TASK_UTILS.register_module()
class UniformSampler(StitchSampler):
    """Draws every stitch equally often, as SN-Netv1 does."""

    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        """See :meth:`StitchSampler.draw`."""
        ids = list(self.costs)
        return (ids[rng.integers(len(ids))],)


@TASK_UTILS.register_module()
class ResourceConstrainedSampler(StitchSampler):
    """Draws a cost group, then a stitch in it (ROS; SN-Netv2, section 4.2).

    Args:
        costs: Costs of the stitches to draw from.
        step: Width of a cost group, in units of the cost; the paper has ``1e9`` for
            ImageNet and ``10e9`` for dense tasks, the default.
        num_groups: Instead of a step, the number of equal parts of the cost range.
        cost: The cost that groups are formed by: ``'flops'``, ``'params'``,
            ``'latency'`` in milliseconds or ``'memory'`` in bytes, of which the last
            two need a file of measured costs (``StitchSamplingHook.costs``).
        **kwargs: See :class:`StitchSampler`.

    Raises:
        ValueError: If both a step and a number of groups are given, one of them is not
            positive, or all stitches fall into one group.
    """

    def __init__(
        self,
        costs: CostTable,
        step: float | None = None,
        num_groups: int | None = None,
        cost: str = 'flops',
        **kwargs,
    ) -> None:
        super().__init__(costs, **kwargs)
        if step is not None and num_groups is not None:
            raise ValueError(
                f'step={step:g} and num_groups={num_groups} exclude each other (config '
                'keys: sampler.step, sampler.num_groups)'
            )
        column = costs.column(cost)
        if num_groups is not None:
            self.groups = split_cost_range(column, num_groups)
            given = f'num_groups={num_groups}'
        else:
            step = DEFAULT_STEP if step is None else step
            self.groups = group_by_cost(column, step)
            given = f'step={step:g}'
        if len(self.groups) < 2:
            low, high = min(column.values()), max(column.values())
            raise ValueError(
                f'{given} puts all stitches into one cost group: {cost} range from '
                f'{low:g} to {high:g}; choose a step well below {high - low:g}, or two '
                'groups or more (config keys: sampler.step, sampler.num_groups)'
            )

    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        """See :meth:`StitchSampler.draw`."""
        group = self.groups[rng.integers(len(self.groups))]
        return (group[rng.integers(len(group))],)
