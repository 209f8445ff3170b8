"""The space of two networks with bridges across any gap between them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from .routes import ANCHOR_KIND, Position, Segment, Stitch, StitchingLayerSpec
from .space import StitchingSpace

NUM_STAGES = 4


class BridgeSpace(StitchingSpace):
    """Routes ``fast[0:i] > slow[j:]`` for pairs ``(i, j)`` of one's choice.

    Nothing says that the blocks left out are alike, or that the second network is
    slower. Ids are 0 and 1 for the networks themselves, then the pairs as given.
    Feature maps are those of blocks that every route runs, so that with maps the first
    network by itself, which has none, is no stitch.

    Args:
        depths: Number of blocks of both networks.
        joints: Pairs ``(i, j)``: the route leaves behind block ``i - 1`` of the first
            network and goes on with block ``j`` of the second.
        ids: Keep only these stitches, and the networks.
        maps: Whether stitches give feature maps.

    Raises:
        ValueError: If there are not two networks, there is no pair or one twice, or a
            pair leaves out a first or a last block.
    """

    has_prior = False

    def __init__(
        self,
        depths: Sequence[int],
        joints: Sequence[Sequence[int]],
        ids: Collection[int] | None = None,
        maps: bool = False,
    ) -> None:
        self.joints = tuple(tuple(joint) for joint in joints)
        if len(depths) != 2:
            raise ValueError(
                f'{len(depths)} networks to bridge; allowed are two, which may be the '
                'same twice (config key: backbone.anchors)'
            )
        d1, d2 = depths
        fits = [0 < i <= d1 and 0 < j < d2 for i, j in self.joints]
        if not fits or not all(fits) or len(set(self.joints)) != len(fits):
            raise ValueError(
                f'joints={list(self.joints)} of networks of {d1} and {d2} blocks; '
                f'allowed are different pairs (i, j) with i from 1 to {d1}, j from 1 '
                f'to {d2 - 1} (config keys: backbone.joints, backbone.stages)'
            )
        self._maps = maps
        stitches = [
            Stitch(a, ANCHOR_KIND, (Segment(a, 0, depth),))
            for a, depth in enumerate(depths)
        ][int(maps) :]
        layers = {}
        for number, (i, j) in enumerate(self.joints):
            name = f'0to1_{i}_{j}'
            layers[name] = StitchingLayerSpec(Position(0, i - 1), Position(1, j - 1))
            route = Segment(0, 0, i), Segment(1, j, d2)
            stitches.append(Stitch(2 + number, 'FS', route, (name,)))
        super().__init__(depths, stitches, layers, (), ids)

    def stand_ins(self, block: int) -> tuple[tuple[Position, str], ...]:
        """See :meth:`StitchingSpace.stand_ins`: there are none.

        Raises:
            ValueError: If the space gives no maps, or not every route runs the block.
        """
        if not self._maps:
            return super().stand_ins(block)
        first = max(j for _, j in self.joints)
        if block < first:
            raise ValueError(
                f'out index {block} of bridged networks; allowed are blocks that all '
                f'routes run, {first} to {self.depths[1] - 1} (config keys: '
                'backbone.out_indices, backbone.joints)'
            )
        return ()


def stages_to_bridge(stages: Sequence[range]) -> tuple[range, ...]:
    """The stages of a network as bridges count them.

    A network of one stage, a plain ViT, is divided into four equal ones (section 2 of
    the paper); the first ones are a block deeper where that does not come out even.

    Args:
        stages: Blocks of every stage of the network.

    Raises:
        ValueError: If it has one stage of fewer than four blocks.
    """
    if len(stages) > 1:
        return tuple(stages)
    depth = len(stages[0])
    if depth < NUM_STAGES:
        raise ValueError(
            f'a network of one stride and {depth} blocks cannot be divided into '
            f'{NUM_STAGES} stages; allowed are {NUM_STAGES} blocks or more (config '
            'key: backbone.anchors)'
        )
    each, more = divmod(depth, NUM_STAGES)
    ends = [s * each + min(s, more) for s in range(NUM_STAGES + 1)]
    return tuple(range(*run) for run in pairwise(ends))


def joint_between(
    fast: Sequence[range], slow: Sequence[range], source: int, target: int
) -> tuple[int, int]:
    """The pair ``(i, j)`` from one stage to another, as the paper has it.

    It leaves behind the first block of the source stage, and goes on behind the first
    block of the target stage, the one that reduces the grid; for the same stage, behind
    its last block.

    Args:
        fast: Stages of the network that is left.
        slow: Stages of the one that is entered.
        source: Stage that is left, from 0.
        target: Stage that is entered, from 0.

    Raises:
        ValueError: If there are no such stages, or nothing is behind the joint.
    """
    if not (0 <= source < len(fast) and 0 <= target < len(slow)):
        raise ValueError(
            f'stages {(source, target)} to bridge; allowed are 0 to {len(fast) - 1} '
            f'and 0 to {len(slow) - 1} (config key: backbone.stages)'
        )
    i = fast[source].start + 1
    j = slow[target].stop if source == target else slow[target].start + 1
    if j == slow[-1].stop:
        raise ValueError(
            f'stages {(source, target)} to bridge leave no block of the second network '
            'to run; allowed are target stages with a block behind the joint (config '
            'key: backbone.stages)'
        )
    return i, j
