"""The space of two networks with bridges across any gap between them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from snnet_mm.stitching import (
    Position,
    Segment,
    Stitch,
    StitchingLayerSpec,
    StitchingSpace,
)
from snnet_mm.stitching.routes import ANCHOR_KIND
from snnet_mm.utils import check

NUM_STAGES = 4
PAIRS = 'backbone.joints, backbone.stages'


class BridgeSpace(StitchingSpace):
    """Routes ``fast[0:i] > slow[j:]`` for chosen pairs ``(i, j)``.

    Nothing says that the blocks left out are alike, or that the second network is
    slower. Ids are 0 and 1 for the networks themselves, then the pairs as given.
    Feature maps are those of blocks that every route runs, so that with maps the first
    network by itself, which has none, is no stitch.

    Args:
        depths: Number of blocks of both networks.
        joints: Pairs ``(i, j)``: the route leaves the first network after block
            ``i - 1`` and goes on with block ``j`` of the second.
        ids: Keep only these stitches, and the networks.
        maps: Whether stitches give feature maps.
    """

    has_prior = False

    def __init__(
        self,
        depths: Sequence[int],
        joints: Sequence[Sequence[int]],
        ids: Collection[int] | None = None,
        maps: bool = False,
    ) -> None:
        check(len(depths) == 2, 'backbone.anchors', depths, 'two networks to bridge')
        self.joints = tuple(tuple(joint) for joint in joints)
        d1, d2 = depths
        fits = [0 < i <= d1 and 0 < j < d2 for i, j in self.joints]
        distinct = len(set(self.joints)) == len(fits) > 0
        wanted = f'different pairs (i, j), i from 1 to {d1}, j from 1 to {d2 - 1}'
        check(distinct and all(fits), PAIRS, self.joints, wanted)
        self._maps = maps
        routes = [(Segment(a, 0, depth),) for a, depth in enumerate(depths)]
        stitches = [Stitch(a, ANCHOR_KIND, r) for a, r in enumerate(routes)][maps:]
        layers = {}
        for number, (i, j) in enumerate(self.joints, start=2):
            name = f'0to1_{i}_{j}'
            layers[name] = StitchingLayerSpec(Position(0, i - 1), Position(1, j - 1))
            route = Segment(0, 0, i), Segment(1, j, d2)
            stitches.append(Stitch(number, 'FS', route, (name,)))
        super().__init__(depths, stitches, layers, (), ids)

    def substitutes(self, block: int) -> tuple[tuple[Position, str], ...]:
        """See :meth:`StitchingSpace.substitutes`: there are none."""
        if not self._maps:
            return super().substitutes(block)
        first = max(j for _, j in self.joints)
        wanted = f'blocks that all routes run, {first} to {self.depths[1] - 1}'
        check(block >= first, 'backbone.out_indices', block, wanted)
        return ()


def stages_to_bridge(stages: Sequence[range]) -> tuple[range, ...]:
    """Return the blocks of the stages of a network as bridges count them.

    A network of one stage, a plain ViT, is divided into four equal ones (section 2 of
    the paper); the first ones are a block deeper where that does not come out even.
    """
    if len(stages) > 1:
        return tuple(stages)
    depth = len(stages[0])
    wanted = f'networks of one stride of {NUM_STAGES} blocks or more'
    check(depth >= NUM_STAGES, 'backbone.anchors', depth, wanted)
    each, more = divmod(depth, NUM_STAGES)
    ends = [s * each + min(s, more) for s in range(NUM_STAGES + 1)]
    return tuple(range(*run) for run in pairwise(ends))


def joint_between(
    fast: Sequence[range], slow: Sequence[range], source: int, target: int
) -> tuple[int, int]:
    """Return the pair ``(i, j)`` from one stage to another, as the paper has it.

    It leaves after the first block of the source stage of ``fast``, and goes on after
    the first block of the target stage of ``slow``, the one that reduces the grid; for
    the same stage, after its last block.
    """
    known = 0 <= source < len(fast) and 0 <= target < len(slow)
    wanted = f'0 to {len(fast) - 1} and 0 to {len(slow) - 1}'
    check(known, 'backbone.stages', (source, target), wanted)
    j = slow[target].stop if source == target else slow[target].start + 1
    wanted = 'pairs that leave a block of the second network to run'
    check(j < slow[-1].stop, 'backbone.stages', (source, target), wanted)
    return fast[source].start + 1, j
