"""Samplers: which stitch each training iteration trains."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod

import numpy as np
from mmengine.dist import get_rank
from mmengine.registry import TASK_UTILS

from snnet_mm.stitching import CostTable, group_by_cost


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
            ImageNet and ``10e9`` for dense tasks.
        cost: The cost that groups are formed by, ``'flops'`` or ``'params'``.
        **kwargs: See :class:`StitchSampler`.

    Raises:
        ValueError: If the step is not positive, or so wide that there is only one
            group.
    """

    def __init__(
        self, costs: CostTable, step: float = 10e9, cost: str = 'flops', **kwargs
    ) -> None:
        super().__init__(costs, **kwargs)
        column = costs.column(cost)
        self.groups = group_by_cost(column, step)
        if len(self.groups) < 2:
            low, high = min(column.values()), max(column.values())
            raise ValueError(
                f'step={step:g} puts all stitches into one cost group: {cost} range '
                f'from {low:g} to {high:g}; choose a step well below {high - low:g} '
                '(config key: sampler.step)'
            )

    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        """See :meth:`StitchSampler.draw`."""
        group = self.groups[rng.integers(len(self.groups))]
        return (group[rng.integers(len(group))],)
