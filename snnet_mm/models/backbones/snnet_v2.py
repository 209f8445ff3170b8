"""SN-Netv2: two anchors stitched two ways."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mmengine.registry import MODELS

from snnet_mm.anchors import Anchor
from snnet_mm.stitching import KINDS, TwoWaySpace

from .stitched_backbone import StitchedBackbone, build_anchors


@MODELS.register_module()
class SNNetv2(StitchedBackbone):
    """Two plain ViTs stitched two ways (Stitched ViTs are Flexible Vision Backbones).

    Args:
        anchors: The fast and the slow anchor, or their configs.
        stitching_layer: Config of the stitching layers, without their widths; the
            paper's default is a low-rank update of rank 16.
        kinds: Kinds of stitches besides the anchors; see :class:`TwoWaySpace`.
        stitch_ids: Keep only these stitches, and the anchors.
        **kwargs: See :class:`StitchedBackbone`.

    Raises:
        ValueError: If there are not two anchors, the fast one is the wider or deeper
            one, they differ in patch size or prefix tokens, or a kind or id is
            unknown.
    """

    def __init__(
        self,
        anchors: Sequence[dict | Anchor],
        stitching_layer: dict | None = None,
        kinds: Collection[str] = KINDS,
        stitch_ids: Collection[int] | None = None,
        **kwargs,
    ) -> None:
        if stitching_layer is None:
            stitching_layer = dict(type='LoRAStitchingLayer', rank=16)
        anchors = build_anchors(anchors)
        space = TwoWaySpace([a.depth for a in anchors], kinds, stitch_ids)
        super().__init__(anchors, space, stitching_layer, **kwargs)
