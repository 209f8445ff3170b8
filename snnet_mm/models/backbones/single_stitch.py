"""One stitch by itself: the backbone of an exported model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mmengine.model import BaseModule, ModuleList
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors import Anchor, TokenState
from snnet_mm.layers import StitchingLayer
from snnet_mm.stitching import Position, Segment, Stitch
from snnet_mm.stitching.routes import check_route

Source = tuple[Position, str | None]  # where a map is taken from, and what projects it


@MODELS.register_module()
class SingleStitch(BaseModule):
    """Runs one route and holds only what it runs; trains as any backbone does.

    Its weights have the names that they have in the stitched backbone, with stitching
    layers merged. Configs are written by :func:`snnet_mm.export.single_stitch_config`.

    Args:
        anchors: Configs of the anchors in their order, None for one without a part in
            the route. Only the blocks of the route are built, and the embedding of the
            anchor that it begins with.
        segments: The route: anchor, first block and block behind the last one of
            every segment.
        joints: Names of the stitching layers between the segments.
        stitching_layers: Widths in front of and behind every stitching layer, by name.
        maps: What ``forward`` returns: for every map the anchor and the block it is
            taken from and the stitching layer that projects it, or None; None in place
            of a map that nothing reads. Without maps it is the final state.
        init_cfg: mmengine's initialisation config.

    Raises:
        ValueError: If the route cannot be run, or a map is not of a block on it.
    """

    def __init__(
        self,
        anchors: Sequence[dict | None],
        segments: Sequence[Sequence[int]],
        joints: Sequence[str] = (),
        stitching_layers: Mapping[str, Sequence[int]] | None = None,
        maps: Sequence[Sequence | None] = (),
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        widths = stitching_layers or {}
        route = tuple(Segment(*segment) for segment in segments)
        self.stitch = Stitch(0, 'single', route, tuple(joints))
        self.anchors = ModuleList(
            config and _build_part(config, a, route) for a, config in enumerate(anchors)
        )
        depths = [anchor.depth if anchor else 0 for anchor in self.anchors]
        check_route(self.stitch, depths, widths)
        self.stitching_layers = nn.ModuleDict(
            {name: StitchingLayer(*widths[name]) for name in widths}
        )
        self.maps = tuple(_read_map(m, self.stitch, widths) for m in maps)

    def forward(self, images: Tensor) -> tuple[Tensor | None, ...] | TokenState:
        """Run the route on images ``(B, 3, H, W)``.

        Returns:
            The maps ``(B, C, h, w)``, None for those that nothing reads; without maps
            the final state.
        """
        taps = {source[0] for source in self.maps if source}
        tapped, crossed = {}, {}
        state = self.anchors[self.stitch.segments[0].anchor].embed(images)
        joints = (None, *self.stitch.layers)
        for joint, (a, begin, end) in zip(joints, self.stitch.segments, strict=True):
            if joint is not None:
                state = crossed[joint] = self._cross(joint, state)
            blocks = {p.block for p in taps if p.anchor == a}
            state, states = self.anchors[a].run_blocks(state, begin, end, blocks)
            tapped |= {Position(a, i): s for i, s in states.items()}
        if not self.maps:
            return state
        # A layer that was crossed on the way has the wanted state already.
        for position, layer in filter(None, self.maps):
            if layer is not None and layer not in crossed:
                crossed[layer] = self._cross(layer, tapped[position])
        to_feature_map = self.anchors[self.stitch.end_anchor].to_feature_map
        return tuple(
            source and to_feature_map(crossed.get(source[1], tapped[source[0]]))
            for source in self.maps
        )

    def fix_input_size(self, size: tuple[int, int]) -> None:
        """See :meth:`Anchor.fix_input_size`."""
        for anchor in filter(None, self.anchors):
            anchor.fix_input_size(size)

    def _cross(self, layer: str, state: TokenState) -> TokenState:
        return state._replace(tokens=self.stitching_layers[layer](state.tokens))


def _build_part(config: dict, a: int, route: Sequence[Segment]) -> Anchor:
    """The part of an anchor that a route runs."""
    blocks = [i for s in route if s.anchor == a for i in range(s.begin, s.end)]
    embedding = route[0].anchor == a
    return MODELS.build(dict(config, held_blocks=blocks, embedding=embedding))


def _read_map(
    source: Sequence | None, stitch: Stitch, layers: Collection[str]
) -> Source | None:
    if source is None:
        return None
    anchor, block, layer = source
    position = Position(anchor, block)
    if not stitch.runs(position) or not (layer is None or layer in layers):
        raise ValueError(
            f'map {tuple(source)} of a single stitch; allowed are an anchor, a block '
            f'of it on the route {stitch.segments}, and None or one of the stitching '
            f'layers {sorted(layers)} (config key: backbone.maps)'
        )
    return position, layer
