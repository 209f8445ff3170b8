"""Samplers: which stitch each training iteration trains."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from mmengine.dist import get_rank
from mmengine.registry import TASK_UTILS

from snnet_mm.stitching import (
    CostTable,
    StitchingSpace,
    group_by_cost,
    split_cost_range,
)
from snnet_mm.utils import is_whole

if TYPE_CHECKING:
    from .importance_sampler import ImportanceSampler

NUM_LOGGED_GROUPS = 10
DEFAULT_STEP = 10e9
# Which anchors come along in a sandwich.
ACCOMPANYING = ('route', 'slowest')


class StitchSampler(metaclass=ABCMeta):
    """Draws stitches, the same ones for the same seed and iteration.

    Nothing else enters a draw, so that resuming is exact and ranks agree without
    talking; but for :attr:`scorer`, whose scores are equal on all ranks and are saved.

    Args:
        costs: Costs of the stitches to draw from.
        seed: Seed of the draws.
        per_rank: Whether every rank draws a stitch of its own.
        space: The stitching space, for samplers that go by routes.
    """

    def __init__(
        self,
        costs: CostTable,
        seed: int = 0,
        per_rank: bool = False,
        space: StitchingSpace | None = None,
    ) -> None:
        self.costs, self.seed, self.per_rank = costs, seed, per_rank
        self.space = space
        # Cost groups that the log tells apart; some samplers draw by them.
        self.groups = split_cost_range(costs.column('flops'), NUM_LOGGED_GROUPS)

    @property
    def scorer(self) -> ImportanceSampler | None:
        """Who learns from every step: this sampler, one that it asks, or nobody."""
        return None

    def sample(self, iteration: int) -> tuple[int, ...]:
        """The stitch ids of an iteration."""
        rank = [get_rank()] if self.per_rank else []
        return self.draw(np.random.default_rng([self.seed, iteration, *rank]))

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Draw one or more stitch ids."""


@TASK_UTILS.register_module()
class UniformSampler(StitchSampler):
    """Draws every stitch equally often, as SN-Netv1 does.

    Args:
        costs: Costs of the stitches to draw from.
        anchors: Whether the anchors themselves are drawn; not where they are frozen.
        **kwargs: See :class:`StitchSampler`.

    Raises:
        ValueError: If anchors are not drawn and there is nothing else, or no ``space``
            that says which they are.
    """

    def __init__(self, costs: CostTable, anchors: bool = True, **kwargs) -> None:
        super().__init__(costs, **kwargs)
        if not anchors and self.space is None:
            raise ValueError(
                'anchors=False without a space, which says what stitches are anchors; '
                'give space=backbone.space'
            )
        left_out = () if anchors else self.space.anchor_ids
        self._ids = [i for i in costs if i not in left_out]
        if not self._ids:
            raise ValueError(
                f'anchors=False of a space with the stitches {list(costs)}, which are '
                'all anchors (config key: sampler.anchors)'
            )

    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        """See :meth:`StitchSampler.draw`."""
        return (self._ids[rng.integers(len(self._ids))],)


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


@TASK_UTILS.register_module()
class SandwichSampler(StitchSampler):
    """Draws random stitches, and with them anchors (SN-Netv1, supplement D).

    By default the slowest anchor on the routes of the random stitches comes first, then
    the fastest one, then these, without repetition. They go into one iteration: the
    model must be a wrapper such as ``SandwichWrapper``.

    Args:
        costs: Costs of the stitches to draw from.
        space: Their stitching space.
        num_random: How many random stitches.
        sampler: Config of the sampler that draws them, from all but the anchors that
            come along; by default a :class:`UniformSampler`.
        anchors: ``'route'`` for the slowest and the fastest anchor on the routes of the
            random stitches, or ``'slowest'`` for the slowest of all alone, which then
            teaches in every iteration (ESTA, section 4.2).
        **kwargs: See :class:`StitchSampler`.

    Raises:
        ValueError: If there are not so many stitches, or no such anchors.
    """

    def __init__(
        self,
        costs: CostTable,
        space: StitchingSpace,
        num_random: int = 1,
        sampler: dict | None = None,
        anchors: str = 'route',
        **kwargs,
    ) -> None:
        super().__init__(costs, space=space, **kwargs)
        if anchors not in ACCOMPANYING:
            raise ValueError(
                f'anchors={anchors!r} of a sandwich; allowed are {ACCOMPANYING} '
                '(config key: sampler.anchors)'
            )
        self.num_random, self.anchors = num_random, anchors
        always = space.anchor_ids[-1:] if anchors == 'slowest' else space.anchor_ids
        middle = {i: costs[i] for i in costs if i not in always}
        if not is_whole(num_random, 1) or num_random > len(middle):
            raise ValueError(
                f'num_random={num_random}; allowed are 1 to {len(middle)}, as many as '
                'there are besides these anchors (config key: sampler.num_random)'
            )
        defaults = dict(costs=replace(costs, costs=middle), space=space)
        self._random = TASK_UTILS.build(
            sampler or dict(type='UniformSampler'), default_args=defaults
        )

    @property
    def scorer(self) -> ImportanceSampler | None:
        """See :meth:`StitchSampler.scorer`."""
        return self._random.scorer

    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        """See :meth:`StitchSampler.draw`."""
        drawn: dict[int, None] = {}  # a set that keeps the order
        while len(drawn) < self.num_random:
            drawn |= dict.fromkeys(self._random.draw(rng))
        anchors = self.space.anchor_ids
        if self.anchors == 'slowest':
            return anchors[-1], *drawn
        run = {s.anchor for i in drawn for s in self.space[i].segments}
        return anchors[max(run)], anchors[min(run)], *drawn
