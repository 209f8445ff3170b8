"""SN-Netv2: anchors stitched two ways."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mmengine.registry import MODELS

from snnet_mm.anchors import Anchor
from snnet_mm.stitching import KINDS, TwoWaySpace
from snnet_mm.utils import check, register

from .stitched_backbone import StitchedBackbone, build_anchors


@register(MODELS)
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
        out, **kwargs: See :class:`StitchedBackbone`.
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
        plain = all(len(a.stages) == 1 for a in anchors)
        wanted = "'SNNetv1' for anchors with stages, which are stitched one way"
        check(plain, 'backbone.type', 'SNNetv2', wanted)
        depths = [a.depth for a in anchors]
        space = TwoWaySpace(depths, kinds, stitch_ids, maps=out == 'maps')
        super().__init__(anchors, space, stitching_layer, out, **kwargs)
