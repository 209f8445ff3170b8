"""The space of SN-Netv1 for networks with stages."""

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, pairwise, product
from math import ceil

from snnet_mm.utils import check

from .routes import ANCHOR_KIND, Position, Segment, Stitch, StitchingLayerSpec
from .space import StitchingSpace, Substitute, layer_name


class StagedSpace(StitchingSpace):
    """Fast-to-slow stitches of networks with stages (SN-Netv1, section 3.2).

    A route changes anchor at most once, to the next slower anchor, inside a stage,
    where the maps of both have equal stride. In a stage of ``d1`` fast and ``d2`` slow
    blocks it may enter the slow anchor at any block ``j`` except the first. It leaves
    the fast anchor after block ``floor(j * d1 / d2)``, to which ``j`` belongs; if the
    depths are equal, after block ``j - 1``.

    Ids and joints follow the authors' code: the anchors, fast -> slow, then stage by
    stage, pair by pair, the joints in ascending order.

    Feature maps come from the last blocks of stages. If a route finishes a stage in a
    faster anchor, one layer projects that anchor's map straight to the slowest width.
    The layer is fitted to the slowest anchor's map after the same stage.

    Args:
        stage_depths: Number of blocks in every stage of every anchor, ordered fast ->
            slow.
        stages: Stages to stitch, from 0; by default all but the last. The authors use
            ``(0, 1, 2)`` for Swin, ``(1, 2)`` for ResNet and ResNet with Swin,
            ``(0, 1)`` for LeViT.
        share_layers: Whether joints with equal ``floor((j - 1) * d1 / d2)`` share a
            stitching layer, named after the first of them, as in the authors' code. By
            default every joint has its own.
        ids: See :class:`StitchingSpace`.
        maps: Whether to add layers for feature maps.
        end_maps: Whether maps have the widths of the anchor in which a route ends.
    """

    def __init__(
        self,
        stage_depths: Sequence[Sequence[int]],
        stages: Collection[int] | None = None,
        ids: Collection[int] | None = None,
        maps: bool = True,
        end_maps: bool = False,
        share_layers: bool = False,
    ) -> None:
        self.stage_depths = tuple(tuple(depths) for depths in stage_depths)
        counts = {len(depths) for depths in self.stage_depths}
        even = len(self.stage_depths) > 1 and len(counts) == 1
        expected = 'at least two anchors with equal numbers of stages'
        check(even, 'backbone.anchors', self.stage_depths, expected)
        (num_stages,) = counts
        self.stages = tuple(range(num_stages - 1) if stages is None else stages)
        once = len({*self.stages} & {*range(num_stages)}) == len(self.stages)
        expected = f'stages 0 to {num_stages - 1}, each once'
        check(once, 'backbone.stages', self.stages, expected)
        # First block of every stage, then the depth of the anchor.
        self._begins = [(0, *accumulate(depths)) for depths in self.stage_depths]
        depths = [begins[-1] for begins in self._begins]
        stitches = [
            Stitch(a, ANCHOR_KIND, (Segment(a, 0, depth),))
            for a, depth in enumerate(depths)
        ]
        layers: dict[str, StitchingLayerSpec] = {}
        for a, last, first, shared in self._joints():
            name = layer_name(a, a + 1, shared if share_layers else first)
            spec = StitchingLayerSpec(Position(a, last), Position(a + 1, first - 1))
            layers.setdefault(name, spec)
            route = Segment(a, 0, last + 1), Segment(a + 1, first, depths[a + 1])
            stitches.append(Stitch(len(stitches), 'FS', route, (name,)))
        joined = len(stitches) > len(depths)
        expected = 'stages with at least two blocks in the slower anchor'
        check(joined, 'backbone.stages', self.stages, expected)
        substitutes = self._add_map_layers(layers, end_maps) if maps else None
        super().__init__(depths, stitches, layers, ids, substitutes, (), end_maps)

    def _add_map_layers(
        self, layers: dict[str, StitchingLayerSpec], end_maps: bool
    ) -> dict[Position, list[Substitute]]:
        """Add layers for the maps at the ends of stages; return the substitutes."""
        found: dict[Position, list[Substitute]] = {}
        faster = range(len(self.stage_depths) - 1)
        for a, stage in product(faster, range(len(self.stage_depths[0]))):
            last = [
                Position(b, begins[stage + 1] - 1)
                for b, begins in enumerate(self._begins)
            ]
            if end_maps:
                found.setdefault(last[a], [])
            for end in last[a + 1 :] if end_maps else last[-1:]:
                name = f'{layer_name(a, end.anchor, stage)}_map'
                layers[name] = StitchingLayerSpec(last[a], end)
                # Slower anchors first: a route uses the first substitute it runs.
                found.setdefault(end, []).insert(0, (last[a], name))
        return found

    def _joints(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield ``(anchor, last, first, shared)`` for every joint.

        ``last`` is the anchor's last block before the joint, ``first`` the next
        anchor's first block after it. ``shared`` is the smallest ``first`` of all
        joints that may share a layer with it.
        """
        for stage in self.stages:
            for a, (fast, slow) in enumerate(pairwise(self.stage_depths)):
                d1, d2 = fast[stage], slow[stage]
                begin, entered = (self._begins[x][stage] for x in (a, a + 1))
                for j in range(1, d2):
                    last = j - 1 if d1 == d2 else j * d1 // d2
                    shared = 1 + ceil((j - 1) * d1 // d2 * d2 / d1)
                    yield a, begin + last, entered + j, entered + shared
