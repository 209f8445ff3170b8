"""A single stitch: the backbone of an exported model."""

from collections.abc import Mapping, Sequence

from mmengine.model import BaseModule, ModuleList
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors import BackboneMap, TokenState, layer_depth_among
from snnet_mm.stitching import Position, Segment, Stitch

from ..layers.stitching_layer import StitchingLayer
from .walk import Tap, walk


@MODELS.register_module()
class SingleStitch(BaseModule):
    """Runs one route and contains only what it needs; trains like any backbone.

    Weights keep their names from the stitched backbone; stitching layers are merged.
    :func:`snnet_mm.exports.single_stitch_config` writes the config.

    Args:
        anchors: Configs of the anchors in order; None for an anchor that is not run.
        segments: ``(anchor, first block, block after the last)`` per segment.
        joints: Names of the stitching layers between the segments.
        stitching_layers: Config of each layer by name; ``(in_dim, out_dim)`` stands for
            a plain one.
        maps: ``(anchor, block, layer)`` per map, where ``layer`` projects the map or is
            None. A map that nothing reads is None. Without maps, ``forward`` returns
            the final state.
        map_anchor: The anchor to which maps belong; its config is needed even if it is
            not run. Default: the end anchor.
        with_cls, init_cfg: See :class:`StitchedBackbone`.
    """

    def __init__(
        self,
        anchors: Sequence[dict | None],
        segments: Sequence[Sequence[int]],
        joints: Sequence[str] = (),
        stitching_layers: Mapping[str, Sequence[int] | dict] | None = None,
        maps: Sequence[Sequence | None] = (),
        with_cls: bool = False,
        map_anchor: int | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        route = tuple(Segment(*s) for s in segments)
        self.stitch = Stitch(0, 'single', route, tuple(joints))
        self.anchors = ModuleList()
        for a, config in enumerate(anchors):
            blocks = [i for s in route if s.anchor == a for i in range(s.begin, s.end)]
            part = dict(kept_blocks=blocks, embedding=route[0].anchor == a)
            self.anchors.append(MODELS.build(dict(config, **part)) if config else None)
        self.stitching_layers = nn.ModuleDict(
            {
                name: MODELS.build(c) if isinstance(c, dict) else StitchingLayer(*c)
                for name, c in (stitching_layers or {}).items()
            }
        )
        self.maps: tuple[Tap | None, ...] = tuple(
            m and (Position(*m[:2]), m[2]) for m in maps
        )
        self.with_cls = with_cls
        self.map_anchor = self.stitch.end_anchor if map_anchor is None else map_anchor

    def forward(self, images: Tensor) -> tuple[BackboneMap | None, ...] | TokenState:
        taps = [tap for tap in self.maps if tap]
        steps = self.stitch.steps
        end, states = walk(self.anchors, self.stitching_layers, steps, images, taps)
        if not self.maps:
            return end
        anchor = self.anchors[self.map_anchor]
        return tuple(
            tap and anchor.to_output(states[tap], self.with_cls, j)
            for j, tap in enumerate(self.maps)
        )

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Return a parameter's level and the level count, for mmpretrain's decay."""
        return layer_depth_among(self.anchors, param_name.removeprefix(prefix))

    def fix_input_size(self, size: tuple[int, int]) -> None:
        """See :meth:`Anchor.fix_input_size`."""
        for anchor in filter(None, self.anchors):
            anchor.fix_input_size(size)
