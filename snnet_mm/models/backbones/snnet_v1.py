"""SN-Netv1: anchors stitched fast to slow."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mmengine.registry import MODELS

from snnet_mm.anchors import Anchor
from snnet_mm.stitching import SlidingWindowSpace, StitchingSpace, TwoWaySpace

from .stitched_backbone import StitchedBackbone, build_anchors


@MODELS.register_module()
class SNNetv1(StitchedBackbone):
    """Plain ViTs stitched fast to slow (Stitchable Neural Networks, section 3.2).

    Two anchors of unequal depth are matched by nearest interpolation; anchors of equal
    depth, two or more, are stitched by sliding windows and give ``out='end'`` only.

    Args:
        anchors: The anchors or their configs, ordered fast -> slow.
        stitching_layer: Config of the stitching layers, without their widths; by
            default fully trained ones.
        kernel: See :class:`SlidingWindowSpace`.
        stride: See :class:`SlidingWindowSpace`.
        nearest: See :class:`SlidingWindowSpace`.
        stitch_ids: Keep only these stitches, and the anchors.
        **kwargs: See :class:`StitchedBackbone`.

    Raises:
        ValueError: If the anchors cannot be stitched this way.
    """

    def __init__(
        self,
        anchors: Sequence[dict | Anchor],
        stitching_layer: dict | None = None,
        kernel: int = 2,
        stride: int = 1,
        nearest: bool = True,
        stitch_ids: Collection[int] | None = None,
        **kwargs,
    ) -> None:
        if stitching_layer is None:
            stitching_layer = dict(type='StitchingLayer')
        anchors = build_anchors(anchors)
        depths = [a.depth for a in anchors]
        space: StitchingSpace
        if len(set(depths)) == 1:
            space = SlidingWindowSpace(depths, kernel, stride, nearest, stitch_ids)
        else:
            space = TwoWaySpace(depths, kinds=('FS',), ids=stitch_ids)
        super().__init__(anchors, space, stitching_layer, **kwargs)
