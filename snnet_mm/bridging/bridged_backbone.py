"""Two frozen networks with trained adapters between any of their blocks."""

from collections.abc import Collection, Sequence

import numpy as np
from mmengine.registry import MODELS

from snnet_mm.anchors import Anchor
from snnet_mm.anchors.timm_stage_anchor import holds_downsampling
from snnet_mm.models import StitchedBackbone
from snnet_mm.stitching import (
    Position,
    Segment,
    Stitch,
    StitchingLayerSpec,
    StitchingSpace,
)
from snnet_mm.stitching.routes import ANCHOR_KIND
from snnet_mm.utils import check

from .adapters import Adapter, widen_by_stages

NUM_STAGES = 4


@MODELS.register_module()
class BridgedBackbone(StitchedBackbone):
    """Two frozen networks of any kind, joined by adapters across any gap (section 2).

    A route runs the first network up to a block and the second network from a block on.
    In between it runs one adapter per stage crossed; see :func:`widen_by_stages`. A new
    backbone runs its first bridge.

    Args:
        anchors: The two networks or their configs. To stitch a network to itself, pass
            its config twice.
        stages: Pairs of stages left and entered, counted from 0; see
            :func:`joint_between` and :func:`stages_to_bridge`.
        frozen_eval: Whether the networks stay in eval mode. If False, as in the
            authors' code, batch norms use and accumulate batch statistics, and
            stochastic depth is active. Default: True.
    """

    layer_class = Adapter

    def __init__(
        self,
        anchors: Sequence[dict | Anchor],
        stitching_layer: dict,
        stages: Sequence[Sequence[int]],
        frozen_eval: bool = True,
        stitch_ids: Collection[int] | None = None,
        out: str = 'maps',
        **kwargs,
    ) -> None:
        built = [MODELS.build(a) if isinstance(a, dict) else a for a in anchors]
        check(len(built) == 2, 'backbone.anchors', len(built), 'two networks to bridge')
        blocks = [block for a in built for block in getattr(a, 'blocks', ())]
        apart = not any(map(holds_downsampling, blocks))
        expected = 'True for both networks, as stages are joined at these blocks'
        check(apart, 'backbone.anchors.downsampling_blocks', apart, expected)
        self._stages = [stages_to_bridge(a.stages) for a in built]
        joints = [joint_between(*self._stages, *pair) for pair in stages]
        depths = [a.depth for a in built]
        space = BridgeSpace(depths, joints, stitch_ids, maps=out == 'maps')
        super().__init__(built, space, stitching_layer, out, **kwargs)
        self.held_in_eval = frozen_eval
        self.anchors.requires_grad_(False)
        bridges = [i for i in space.ids if i not in space.anchor_ids]
        if bridges:
            self.set_stitch(bridges[0])

    def layer_arguments(self, spec: StitchingLayerSpec) -> dict:
        """Return the arguments of an :class:`Adapter`."""
        fast, slow = self.anchors
        of_fast, of_slow = self._stages
        source, target = spec.source.block, spec.target.block
        first = next(s for s, blocks in enumerate(of_fast) if source in blocks)
        last = next(s for s, blocks in enumerate(of_slow) if target in blocks)
        width = fast.block_dims[source]
        # A cls token of only the first network doubles the width of all patches.
        doubled = width * (2 if fast.num_prefix > slow.num_prefix else 1)
        stride = fast.block_strides[source]
        to = slow.block_dims[target], slow.block_strides[target]
        return dict(
            in_dim=width,
            in_stride=stride,
            hops=widen_by_stages((doubled, stride), to, max(abs(last - first), 1)),
            prefix=(fast.num_prefix, slow.num_prefix),
        )

    def train(self, mode: bool = True) -> 'BridgedBackbone':
        super().train(mode)
        if self.held_in_eval:
            self.anchors.eval()
        return self


class BridgeSpace(StitchingSpace):
    """Routes ``fast[0:i] > slow[j:]`` for chosen pairs ``(i, j)``.

    Ids 0 and 1 are the networks themselves, followed by the pairs in order. Feature
    maps come from blocks that every route runs. The first network alone runs none of
    them, so with ``maps`` it is no stitch.
    """

    has_prior = False  # the second network need not be slower or better

    def __init__(
        self,
        depths: Sequence[int],
        joints: Sequence[Sequence[int]],
        ids: Collection[int] | None = None,
        maps: bool = False,
    ) -> None:
        joints = tuple(tuple(joint) for joint in joints)
        d1, d2 = depths
        fits = [0 < i <= d1 and 0 < j < d2 for i, j in joints]
        distinct = len(set(joints)) == len(fits) > 0
        expected = f'different pairs (i, j), i from 1 to {d1}, j from 1 to {d2 - 1}'
        check(distinct and all(fits), 'backbone.stages', joints, expected)
        routes = [(Segment(a, 0, depth),) for a, depth in enumerate(depths)]
        stitches = [Stitch(a, ANCHOR_KIND, r) for a, r in enumerate(routes)][maps:]
        layers = {}
        for number, (i, j) in enumerate(joints, start=2):
            name = f'0to1_{i}_{j}'
            layers[name] = StitchingLayerSpec(Position(0, i - 1), Position(1, j - 1))
            route = Segment(0, 0, i), Segment(1, j, d2)
            stitches.append(Stitch(number, 'FS', route, (name,)))
        common = range(max(j for _, j in joints), d2) if maps else ()
        substitutes = {Position(1, block): () for block in common}
        super().__init__(depths, stitches, layers, ids, substitutes)


def stages_to_bridge(stages: Sequence[range]) -> tuple[range, ...]:
    """Return the stages of a network, as ranges of blocks, as bridges count them.

    A plain ViT is divided into four equal stages (section 2). If its depth is not
    divisible by four, the first stages are one block deeper.
    """
    if len(stages) > 1:
        return tuple(stages)
    (blocks,) = stages
    expected = f'networks with stages, or with at least {NUM_STAGES} blocks'
    check(len(blocks) >= NUM_STAGES, 'backbone.anchors', len(blocks), expected)
    parts = np.array_split(blocks, NUM_STAGES)
    return tuple(range(part[0], part[-1] + 1) for part in parts)


def joint_between(
    fast: Sequence[range], slow: Sequence[range], source: int, target: int
) -> tuple[int, int]:
    """Return the pair ``(i, j)`` that joins two stages, as the paper defines it.

    The route leaves ``fast`` after the first block of stage ``source``, and enters
    ``slow`` after the first block of stage ``target``, which reduces the grid. If the
    stages are the same, it enters after the last block. A separate downsampling module
    is the first block.
    """
    known = 0 <= source < len(fast) and 0 <= target < len(slow)
    expected = f'0 to {len(fast) - 1} and 0 to {len(slow) - 1}'
    check(known, 'backbone.stages', (source, target), expected)
    j = slow[target].stop if source == target else slow[target].start + 1
    expected = 'pairs that leave at least one block of the second network'
    check(j < slow[-1].stop, 'backbone.stages', (source, target), expected)
    return fast[source].start + 1, j
