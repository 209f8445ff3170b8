"""Two frozen networks with trained adapters between any of their blocks."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mmengine.registry import MODELS

from snnet_mm.anchors import Anchor
from snnet_mm.models import StitchedBackbone
from snnet_mm.stitching import StitchingLayerSpec
from snnet_mm.utils import check, register

from .adapters import Adapter
from .bridge_space import PAIRS, BridgeSpace, joint_between, stages_to_bridge


@register(MODELS)
class BridgedBackbone(StitchedBackbone):
    """Two networks of any kind, joined across any gap by adapters (section 2).

    A route runs the first network up to a block and the second one from another; in
    between is one adapter per stage crossed, each of which leads to the width and grid
    after the first block of the next stage. A new backbone runs its first bridge.

    Args:
        anchors: The two networks or their configs; for one stitched to itself, the same
            config twice.
        stitching_layer: Config of the adapters; see :class:`Adapter`.
        stages: Pairs of stages, from 0, that are left and entered; see
            :func:`joint_between`. Stages are runs of blocks of equal stride, of a plain
            ViT four equal parts.
        joints: Instead of stages, pairs of blocks; see :class:`BridgeSpace`.
        frozen: Whether the networks are frozen, in eval mode.
        stitch_ids: Keep only these stitches, and the networks by themselves.
        out: See :class:`StitchedBackbone`; for ``'maps'`` out indices are blocks that
            all routes run.
        **kwargs: See :class:`StitchedBackbone`.
    """

    layer_class = Adapter

    def __init__(
        self,
        anchors: Sequence[dict | Anchor],
        stitching_layer: dict,
        stages: Sequence[Sequence[int]] | None = None,
        joints: Sequence[Sequence[int]] | None = None,
        frozen: bool = True,
        stitch_ids: Collection[int] | None = None,
        out: str = 'maps',
        **kwargs,
    ) -> None:
        check((stages is None) != (joints is None), PAIRS, (joints, stages), 'one')
        built = [MODELS.build(a) if isinstance(a, dict) else a for a in anchors]
        self._stages = [stages_to_bridge(a.stages) for a in built]
        if stages is not None and len(built) == 2:
            joints = [joint_between(*self._stages, *pair) for pair in stages]
        depths = [a.depth for a in built]
        space = BridgeSpace(depths, joints or (), stitch_ids, maps=out == 'maps')
        _check_prefixes(*built)
        super().__init__(built, space, stitching_layer, out, **kwargs)
        self.frozen = frozen
        if frozen:
            self.anchors.requires_grad_(False)
        bridges = [i for i in space.ids if i not in space.anchor_ids]
        if bridges:
            self.set_stitch(bridges[0])

    def layer_arguments(self, spec: StitchingLayerSpec) -> dict:
        """See :meth:`StitchedBackbone.layer_arguments`: those of :class:`Adapter`."""
        fast, slow = self.anchors
        of_fast, of_slow = self._stages
        source, target = spec.source.block, spec.target.block
        first = next(s for s, blocks in enumerate(of_fast) if source in blocks)
        last = next(s for s, blocks in enumerate(of_slow) if target in blocks)
        step = 1 if first <= last else -1
        # A network that is left may have more stages than the one that is entered.
        between = [s for s in range(first + step, last, step) if s < len(of_slow)]
        blocks = [*(of_slow[s].start for s in between), target]
        return dict(
            in_dim=fast.block_dims[source],
            in_stride=fast.block_strides[source],
            hops=[(slow.block_dims[b], slow.block_strides[b]) for b in blocks],
            prefix=(fast.num_prefix, slow.num_prefix),
        )

    def train(self, mode: bool = True) -> BridgedBackbone:
        """Set the mode of all parts but frozen networks, which stay in eval mode."""
        super().train(mode)
        if self.frozen:
            self.anchors.eval()
        return self


def _check_prefixes(fast: Anchor, slow: Anchor) -> None:
    """Refuse registers that only one network has: there is no rule for them."""
    a, b = ((int(x.has_cls), x.num_prefix - x.has_cls) for x in (fast, slow))
    wanted = 'a cls token that one network lacks, and equal numbers of registers'
    tokens = f'{a[0]} cls token and {a[1]} registers, and {b[0]} and {b[1]}'
    check(a == b or not (a[1] or b[1]), 'backbone.anchors', tokens, wanted)
