"""SN-Netv1 and SN-Netv2: anchors stitched in one direction, and in both."""

from collections.abc import Collection, Sequence

from mmengine.registry import MODELS

from snnet_mm.anchors import Anchor
from snnet_mm.stitching import KINDS, SlidingWindowSpace, StagedSpace, TwoWaySpace
from snnet_mm.utils import check

from .stitched_backbone import StitchedBackbone, build_anchors

DIRECTIONS = ('FS', 'SF')
TRAINED = dict(type='StitchingLayer')
LOW_RANK = dict(type='LoRAStitchingLayer', rank=16)


@MODELS.register_module()
class SNNetv1(StitchedBackbone):
    """Networks stitched one way (Stitchable Neural Networks, section 3.2).

    Anchors with stages, even of different families, get a :class:`StagedSpace`. Plain
    anchors of equal depth get a :class:`SlidingWindowSpace`, with ``out='end'`` only.
    Other anchors get one direction of a :class:`TwoWaySpace`.

    Args:
        anchors: The anchors or their configs, ordered fast -> slow.
        stitching_layer: Config of the stitching layers, without widths. Default: fully
            trained layers.
        kernel, stride, nearest: See :class:`SlidingWindowSpace`.
        direction: ``'FS'``, or ``'SF'`` for plain anchors (figure 9a of the paper).
        stitch_ids: Stitches to keep besides the anchors. Default: all.
        stages, share_layers: For anchors with stages; see :class:`StagedSpace`. Plain
            anchors of unequal depth are one stage: with ``(0,)``, a route may enter
            the slow one at any block, not only where a fast block's group of blocks
            ends. Then depths 32/40 have 41 stitches instead of 33; ESTA counts 40.
        out, maps_of, **kwargs: See :class:`StitchedBackbone`.
    """

    def __init__(
        self,
        anchors: Sequence[dict | Anchor],
        stitching_layer: dict = TRAINED,
        kernel: int = 2,
        stride: int = 1,
        nearest: bool = True,
        direction: str = 'FS',
        stitch_ids: Collection[int] | None = None,
        out: str = 'maps',
        stages: Collection[int] | None = None,
        maps_of: str = 'slowest',
        share_layers: bool = False,
        **kwargs,
    ) -> None:
        check(direction in DIRECTIONS, 'backbone.direction', direction, DIRECTIONS)
        anchors = build_anchors(anchors)
        depths = [a.depth for a in anchors]
        uneven = len(set(depths)) > 1
        staged = any(len(a.stages) > 1 for a in anchors)
        staged = staged or (uneven and stages is not None)
        of_space = dict(ids=stitch_ids, maps=out == 'maps', end_maps=maps_of == 'end')
        given = dict(kernel=kernel, stride=stride, nearest=nearest, direction=direction)
        of_stages = dict(stages=stages, share_layers=share_layers)
        default = dict(kernel=2, stride=1, nearest=True, direction='FS')
        fits = given == default if staged else stages is None and not share_layers
        expected = 'stages and share_layers for anchors with stages or unequal depths, '
        expected += 'the other settings for plain anchors'
        check(fits, 'backbone.stages', given | of_stages, expected)
        if staged:
            stage_depths = [[len(stage) for stage in a.stages] for a in anchors]
            space = StagedSpace(stage_depths, **of_stages, **of_space)
        elif not uneven:
            space = SlidingWindowSpace(depths, ids=stitch_ids, **given)
        else:
            expected = f'True for anchors of depths {tuple(depths)}'
            check(nearest or len(depths) == 2, 'backbone.nearest', nearest, expected)
            space = TwoWaySpace(depths, (direction,), **of_space)
        kwargs |= dict(out=out, maps_of=maps_of)
        super().__init__(anchors, space, stitching_layer, **kwargs)


@MODELS.register_module()
class SNNetv2(StitchedBackbone):
    """Plain ViTs stitched two ways (Stitched ViTs are Flexible Vision Backbones).

    Three or more ViTs form a chain in which only neighbours are stitched. By default,
    stitching layers have low-rank updates of rank 16, as in the paper.

    Args:
        anchors, stitching_layer, stitch_ids: See :class:`SNNetv1`.
        kinds: Kinds of stitches besides the anchors; see :class:`TwoWaySpace`.
        out, maps_of, **kwargs: See :class:`StitchedBackbone`.
    """

    def __init__(
        self,
        anchors: Sequence[dict | Anchor],
        stitching_layer: dict = LOW_RANK,
        kinds: Collection[str] = KINDS,
        stitch_ids: Collection[int] | None = None,
        out: str = 'maps',
        maps_of: str = 'slowest',
        **kwargs,
    ) -> None:
        anchors = build_anchors(anchors)
        plain = all(len(a.stages) == 1 for a in anchors)
        expected = "'SNNetv1' for anchors with stages, which are stitched one way"
        check(plain, 'backbone.type', 'SNNetv2', expected)
        depths, maps = [a.depth for a in anchors], out == 'maps'
        space = TwoWaySpace(depths, kinds, stitch_ids, maps, maps_of == 'end')
        kwargs |= dict(out=out, maps_of=maps_of)
        super().__init__(anchors, space, stitching_layer, **kwargs)
