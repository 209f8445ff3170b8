"""A single stitch: the backbone of an exported model."""

from collections.abc import Mapping, Sequence

from mmengine.model import BaseModule, ModuleList
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors import (
    BackboneMap,
    BranchView,
    TokenState,
    layer_depth_among,
)
from snnet_mm.stitching import Position, Segment, Stitch

from ..layers.narrow_branch import NarrowBranch
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
        stitching_layers: Config, or ``(in_dim, out_dim)``, of each layer by name; of a
            narrow branch ``step`` and ``units``.
        maps: ``(anchor, block, layer)`` per map, where ``layer`` projects the map or is
            None. A map that nothing reads is None. Without maps, ``forward`` returns
            the final state.
        map_anchor: The anchor to which maps belong; its config is needed even if it is
            not run. Default: the end anchor.
        by_branch: Whether positions count the steps of a :class:`BranchView`, as in an
            :class:`ElasticBackbone`. What a chain does not run is then removed.
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
        by_branch: bool = False,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        layers, route = stitching_layers or {}, tuple(Segment(*s) for s in segments)
        self.stitch = Stitch(0, 'single', route, tuple(joints))
        self.anchors = ModuleList()
        for a, config in enumerate(anchors):
            blocks = [i for s in route if s.anchor == a for i in range(s.begin, s.end)]
            part = dict(kept_blocks=blocks, embedding=route[0].anchor == a)
            part = {} if by_branch else part
            self.anchors.append(MODELS.build(dict(config, **part)) if config else None)
        self.view = BranchView(self.anchors[0]) if by_branch else None
        self.stitching_layers = nn.ModuleDict()
        for name, c in layers.items():
            if isinstance(c, dict) and 'step' in c:
                dim, branch = self.view.block_dims[c['step']], self.view[c['step']]
                layer = NarrowBranch(branch, c['units'], dim, None, c['step'])
            else:
                layer = MODELS.build(c) if isinstance(c, dict) else StitchingLayer(*c)
            self.stitching_layers[name] = layer
        if by_branch:
            runs = {i for s in route for i in range(s.begin, s.end)}
            narrow = [c for c in layers.values() if isinstance(c, dict) and 'step' in c]
            units = {c['step']: c['units'] for c in narrow}
            self.view.cut(
                {i: units.get(i, 0) for i in {*range(self.view.depth)} - runs}
            )
        self.maps = tuple(_read_map(m, self.stitch, layers) for m in maps)
        self.with_cls = with_cls
        self.map_anchor = self.stitch.end_anchor if map_anchor is None else map_anchor

    def forward(self, images: Tensor) -> tuple[BackboneMap | None, ...] | TokenState:
        taps = [tap for tap in self.maps if tap]
        steps = self.stitch.steps
        runners = (self.view,) if self.view else self.anchors
        end, states = walk(runners, self.stitching_layers, steps, images, taps)
        if not self.maps:
            return end
        anchor = self.anchors[self.map_anchor]
        return tuple(
            tap and anchor.to_output(states[tap], self.with_cls, j)
            for j, tap in enumerate(self.maps)
        )

    def train(self, mode: bool = True) -> 'SingleStitch':
        if self.view:
            self.view.forget()
        return super().train(mode)

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Return a parameter's level and the level count, for mmpretrain's decay."""
        return layer_depth_among(self.anchors, param_name.removeprefix(prefix))

    def fix_input_size(self, size: tuple[int, int]) -> None:
        """See :meth:`Anchor.fix_input_size`."""
        for anchor in filter(None, self.anchors):
            anchor.fix_input_size(size)


def _read_map(source: Sequence | None, stitch: Stitch, layers: Mapping) -> Tap | None:
    if source is None:
        return None
    *place, layer = source
    position = Position(*place)
    assert stitch.runs(position), source
    assert layer in (None, *layers), source
    return position, layer
