"""SN-Netv2: anchors stitched two ways."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mmengine.registry import MODELS

from snnet_mm.anchors import Anchor
from snnet_mm.stitching import KINDS, TwoWaySpace

from .stitched_backbone import StitchedBackbone, build_anchors


@MODELS.register_module()
class SNNetv2(StitchedBackbone):
    """Plain ViTs stitched two ways (Stitched ViTs are Flexible Vision Backbones).

    The paper stitches two; three or more are stitched as a chain of neighbours, see
    :class:`TwoWaySpace` for their routes, ids and feature maps.

    Args:
        anchors: The anchors or their configs, ordered fast -> slow.
        stitching_layer: Config of the stitching layers, without their widths; the
            paper's default is a low-rank update of rank 16.
        kinds: Kinds of stitches besides the anchors; see :class:`TwoWaySpace`.
        stitch_ids: Keep only these stitches, and the anchors.
        out: See :class:`StitchedBackbone`.
        **kwargs: See :class:`StitchedBackbone`.

    Raises:
        ValueError: If there are fewer than two anchors, one is wider or deeper than the
            next slower one, they differ in patch size or prefix tokens or have stages,
            or a kind or id is unknown.
    """

    def __init__(
        self,
        anchors: Sequence[dict | Anchor],
        stitching_layer: dict | None = None,
        kinds: Collection[str] = KINDS,
        stitch_ids: Collection[int] | None = None,
        out: str = 'maps',
        **kwargs,
    ) -> None:
        if stitching_layer is None:
            stitching_layer = dict(type='LoRAStitchingLayer', rank=16)
        anchors = build_anchors(anchors)
        if any(len(a.stages) > 1 for a in anchors):
            raise ValueError(
                'anchors with stages are stitched one way, within their stages; '
                "allowed is type='SNNetv1' (config keys: backbone.type, "
                'backbone.anchors)'
            )
        depths = [a.depth for a in anchors]
        space = TwoWaySpace(depths, kinds, stitch_ids, maps=out == 'maps')
        super().__init__(anchors, space, stitching_layer, out, **kwargs)
