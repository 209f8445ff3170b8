"""Samplers that draw the stitches of each training iteration."""

from abc import ABCMeta, abstractmethod
from collections.abc import Collection

import numpy as np
from mmengine.dist import get_rank
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.registry import TASK_UTILS

from snnet_mm.stitching import (
    StitchingSpace,
    StitchTable,
    default_step,
    group_by_cost,
)
from snnet_mm.utils import check, is_whole

# The anchors that a sandwich may add to its random stitches.
SANDWICH_ANCHORS = ('route', 'slowest')


class StitchSampler(metaclass=ABCMeta):
    """Base class of samplers; draws depend only on seed and iteration.

    A sampler that learns returns a hook, which saves its state and synchronises ranks.

    Args:
        costs: Costs of the stitches, or None.
        per_rank: Whether every rank draws its own stitch.
        ids: Ids of the stitches to draw from. Default: all in ``costs``, else all in
            ``space``. :class:`UniformSampler` draws an id that is listed twice twice as
            often.
    """

    def __init__(
        self,
        costs: StitchTable | None,
        seed: int = 0,
        per_rank: bool = False,
        space: StitchingSpace | None = None,
        ids: Collection[int] | None = None,
    ) -> None:
        self.costs, self.seed, self.per_rank = costs, seed, per_rank
        self.space = space
        known = costs or space.ids
        self.ids = tuple(known if ids is None else ids)
        right = self.ids and {*self.ids} <= {*known}
        check(right, 'sampler.ids', list(self.ids), f'ids among {sorted(known)}')

    def hooks(self) -> list[Hook]:
        """Return the hooks to register before training, none by default."""
        return []

    def sample(self, iteration: int) -> tuple[int, ...]:
        """Return the stitch ids of an iteration."""
        rank = [get_rank()] if self.per_rank else []
        return self.draw(np.random.default_rng([self.seed, iteration, *rank]))

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Draw one or more stitch ids."""

    def flops(self) -> dict[int, float]:
        """Return the FLOPs of the stitches to draw from, by stitch id."""
        kind, other = type(self).__name__, 'a sampler without costs, such as Uniform'
        check(self.costs is not None, 'sampler.type', kind, f'{other}Sampler')
        return {i: self.costs[i].flops for i in self.ids}


@TASK_UTILS.register_module()
class UniformSampler(StitchSampler):
    """Draws every stitch equally often, as SN-Netv1 does.

    Args:
        anchors: Whether to draw the anchors themselves. Disable if they are frozen.
    """

    def __init__(
        self, costs: StitchTable | None = None, anchors: bool = True, **kwargs
    ) -> None:
        super().__init__(costs, **kwargs)
        left_out = () if anchors else self.space.anchor_ids
        self._drawn = [i for i in self.ids if i not in left_out]
        expected = f'True, as the stitches {list(self.ids)} are all anchors'
        check(self._drawn, 'sampler.anchors', anchors, expected)

    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        return (self._drawn[rng.integers(len(self._drawn))],)


@TASK_UTILS.register_module()
class ResourceConstrainedSampler(StitchSampler):
    """Draws a cost group, then a stitch in it (ROS; SN-Netv2, section 4.2).

    Args:
        step: Width of a cost group in FLOPs, 10e9 for the paper's dense tasks. Default:
            the widest step that makes about as many groups as the paper has, 13.
    """

    def __init__(self, costs: StitchTable, step: float | None = None, **kwargs) -> None:
        super().__init__(costs, **kwargs)
        flops = self.flops()
        low, high = min(flops.values()), max(flops.values())
        expected = f'stitches of different FLOPs; all {len(flops)} have {low:g}'
        check(low < high, 'sampler.type', type(self).__name__, expected)
        step = default_step(flops) if step is None else step
        self.groups = group_by_cost(flops, step)
        expected = f'a step that splits {low:g} to {high:g} FLOPs into groups'
        check(len(self.groups) > 1, 'sampler.step', step, expected)
        words = f'Stitches are drawn from {len(self.groups)} cost groups '
        print_log(f'{words}(step: {step / 1e9:.4g} GFLOPs)', 'current')

    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        group = self.groups[rng.integers(len(self.groups))]
        return (group[rng.integers(len(group))],)


@TASK_UTILS.register_module()
class SandwichSampler(StitchSampler):
    """Draws random stitches together with anchors (SN-Netv1, supplement D).

    The anchors come first, slowest before fastest, then the random stitches.

    Args:
        sampler: Config of the sampler of random stitches. Default: uniform.
        anchors: ``'route'`` for the slowest and fastest anchor on the routes of the
            random stitches, or ``'slowest'`` for the slowest anchor of the space (ESTA,
            section 4.2).
    """

    def __init__(
        self,
        costs: StitchTable | None,
        space: StitchingSpace,
        num_random: int = 1,
        sampler: dict | None = None,
        anchors: str = 'route',
        **kwargs,
    ) -> None:
        super().__init__(costs, space=space, **kwargs)
        valid = anchors in SANDWICH_ANCHORS
        check(valid, 'sampler.anchors', anchors, SANDWICH_ANCHORS)
        self.num_random, self.anchors = num_random, anchors
        always = space.anchor_ids[-1:] if anchors == 'slowest' else space.anchor_ids
        middle = [i for i in self.ids if i not in always]
        enough = is_whole(num_random, 1) and num_random <= len(middle)
        check(enough, 'sampler.num_random', num_random, f'1 to {len(middle)}')
        defaults = dict(costs=costs, space=space, ids=middle)
        self.sampler = TASK_UTILS.build(
            sampler or dict(type='UniformSampler'), default_args=defaults
        )

    def hooks(self) -> list[Hook]:
        return self.sampler.hooks()

    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        drawn: dict[int, None] = {}  # a set that keeps the order
        while len(drawn) < self.num_random:
            drawn |= dict.fromkeys(self.sampler.draw(rng))
        anchors = self.space.anchor_ids
        if self.anchors == 'slowest':
            return anchors[-1], *drawn
        run = {s.anchor for i in drawn for s in self.space[i].segments}
        return anchors[max(run)], anchors[min(run)], *drawn
