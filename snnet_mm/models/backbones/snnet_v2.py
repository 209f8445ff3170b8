"""SN-Netv2: two anchors stitched two ways."""

from __future__ import annotations

from collections.abc import Sequence

from mmengine.registry import MODELS

from snnet_mm.anchors import Anchor
from snnet_mm.stitching import TwoWaySpace

from .stitched_backbone import StitchedBackbone


@MODELS.register_module()
class SNNetv2(StitchedBackbone):
    """Two plain ViTs stitched two ways (Stitched ViTs are Flexible Vision Backbones).

    Args:
        anchors: Configs of the fast and the slow anchor.
        stitching_layer: Config of the stitching layers, without their widths; the
            paper's default is a low-rank update of rank 16.
        **kwargs: See :class:`StitchedBackbone`.

    Raises:
        ValueError: If there are not two anchors, the fast one is the wider or deeper
            one, or they differ in patch size or prefix tokens.
    """

    def __init__(
        self,
        anchors: Sequence[dict | Anchor],
        stitching_layer: dict | None = None,
        **kwargs,
    ) -> None:
        if stitching_layer is None:
            stitching_layer = dict(type='LoRAStitchingLayer', rank=16)
        anchors = [MODELS.build(a) if isinstance(a, dict) else a for a in anchors]
        space = TwoWaySpace([a.depth for a in anchors])
        _check_anchors(*anchors)
        super().__init__(anchors, space, stitching_layer, **kwargs)


def _check_anchors(fast: Anchor, slow: Anchor) -> None:
    """Refuse anchors whose tokens do not correspond."""
    if max(fast.block_dims) > max(slow.block_dims):
        raise ValueError(
            f'anchors of widths {max(fast.block_dims)}, {max(slow.block_dims)} are out '
            'of order; they go fast -> slow (config key: backbone.anchors)'
        )
    for key in ('patch_size', 'num_prefix'):
        a, b = getattr(fast, key), getattr(slow, key)
        if a != b:
            raise ValueError(
                f'anchors with {key} {a} and {b} cannot be stitched token by token; '
                f'allowed are anchors of equal {key} (config key: backbone.anchors)'
            )
