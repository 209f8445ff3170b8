"""Two frozen networks with trained adapters between any of their blocks."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mmengine.registry import MODELS

from snnet_mm.anchors import Anchor
from snnet_mm.stitching import (
    BridgeSpace,
    StitchingLayerSpec,
    joint_between,
    stages_to_bridge,
)

from .stitched_backbone import StitchedBackbone


@MODELS.register_module()
class BridgedBackbone(StitchedBackbone):
    """Two networks of any kind, joined across any gap by adapters.

    "Bridging Large Gaps in Neural Network Representations with Model Stitching",
    section 2. A route runs the first network up to a block and then the second one from
    another; everything in between is replaced by one adapter per stage crossed, each of
    which leads to the width and grid behind the first block of the next stage. A new
    backbone runs its first bridge.

    Args:
        anchors: The two networks or their configs; for one stitched to itself, the same
            config twice.
        stitching_layer: Config of the adapters, such as
            ``dict(type='BottleneckAdapter')``, with ``resize`` if wanted; see
            :class:`snnet_mm.models.layers.Adapter`.
        stages: Pairs of stages, from 0: leave behind the first block of one, go on
            behind the first block of the other; see :func:`joint_between`. Stages are
            runs of blocks of equal stride, of a plain ViT four equal parts.
        joints: Instead of stages, pairs of blocks; see :class:`BridgeSpace`.
        frozen: Whether the networks are frozen, in eval mode.
        stitch_ids: Keep only these stitches, and the networks by themselves.
        out: See :class:`StitchedBackbone`; for ``'maps'`` out indices are blocks that
            all routes run.
        **kwargs: See :class:`StitchedBackbone`.

    Raises:
        ValueError: If there are not two networks, not one of ``stages`` and ``joints``,
            a pair leaves nothing to run, the stitching layer is no adapter, or the
            adapter cannot bridge what the networks have as tokens.
    """

    takes_adapters = True

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
        if (stages is None) == (joints is None):
            raise ValueError(
                f'stages={stages} and joints={joints}; wanted is one of them (config '
                'keys: backbone.stages, backbone.joints)'
            )
        built = [MODELS.build(a) if isinstance(a, dict) else a for a in anchors]
        self._stages = [stages_to_bridge(a.stages) for a in built]
        if stages is not None and len(built) == 2:
            joints = [joint_between(*self._stages, *pair) for pair in stages]
        space = BridgeSpace(
            [a.depth for a in built], joints or (), stitch_ids, maps=out == 'maps'
        )
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
        # Behind the first blocks of the stages on the way; a network that is left may
        # have more stages than the one that is entered.
        between = [s for s in range(first + step, last, step) if s < len(of_slow)]
        stops = [*(of_slow[s].start for s in between), target]
        return dict(
            in_dim=fast.block_dims[source],
            in_stride=fast.block_strides[source],
            hops=[(slow.block_dims[b], slow.block_strides[b]) for b in stops],
            prefix=(fast.num_prefix, slow.num_prefix),
        )

    def train(self, mode: bool = True) -> BridgedBackbone:
        """Set the mode of all parts but frozen networks, which stay in eval mode."""
        super().train(mode)
        if self.frozen:
            self.anchors.eval()
        return self


def _check_prefixes(fast: Anchor, slow: Anchor) -> None:
    """Refuse registers that only one has: there is no rule for them.

    Raises:
        ValueError: If the networks differ in registers, or in the cls token in front of
            some.
    """
    a, b = ((int(x.has_cls), x.num_prefix - x.has_cls) for x in (fast, slow))
    if a != b and (a[1] or b[1]):
        raise ValueError(
            f'networks with {a[0]} cls token and {a[1]} registers, and {b[0]} and '
            f'{b[1]}, cannot be bridged; allowed is a cls token that one lacks, and '
            'registers that are the same (config key: backbone.anchors)'
        )
