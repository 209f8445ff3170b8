"""The space of SN-Netv1 for networks with stages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, pairwise

from .routes import ANCHOR_KIND, Position, Segment, Stitch, StitchingLayerSpec
from .space import StitchingSpace, layer_name


class StagedSpace(StitchingSpace):
    """Fast-to-slow stitches of networks with stages (SN-Netv1, section 3.2).

    A route changes anchor inside a stage, where both have maps of equal stride, from an
    anchor to the next slower one, and at most once. In a stage of ``d1`` fast and
    ``d2`` slow blocks it may enter the slow anchor at any block but the first, ``j +
    1`` for ``j = 0 .. d2-2``, and leaves the fast one behind block ``round(j * d1 /
    d2)``, halves rounded up. Every joint has a stitching layer of its own, fitted to
    what enters the slow block.

    Ids and joints are those of the authors' published Swin, ResNet and LeViT: the
    anchors, fast -> slow, then stage by stage, pair by pair, the joints in ascending
    order. That differs from the paper in two ways. Its nearest interpolation would
    leave the fast anchor behind block ``floor(j * d1 / d2)``; and for pairs of equal
    depth, such as Swin-S/B, it has sliding windows of two blocks, where the authors'
    models have but the joints ``(j, j + 1)``, which is the same rule as for other
    depths.

    Feature maps are those behind the last blocks of stages. Where a route ran a stage
    to its end in a faster anchor, one layer projects that anchor's map straight to the
    slowest width; it is fitted to the slowest anchor's map behind the same stage.

    Args:
        stage_depths: Number of blocks in every stage of every anchor, ordered fast ->
            slow.
        stages: Stages that are stitched, from 0; by default all but the last. The
            authors have ``(0, 1, 2)`` for Swin, ``(1, 2)`` for ResNet and ResNet with
            Swin, ``(0, 1)`` for LeViT.
        ids: Keep only these stitches, and the anchors.
        maps: Whether there are layers for feature maps.

    Raises:
        ValueError: If there are fewer than two anchors, they differ in the number of
            stages, none of the stages can be stitched, or a stage or id is unknown.
    """

    def __init__(
        self,
        stage_depths: Sequence[Sequence[int]],
        stages: Collection[int] | None = None,
        ids: Collection[int] | None = None,
        maps: bool = True,
    ) -> None:
        self.stage_depths = tuple(tuple(depths) for depths in stage_depths)
        counts = {len(depths) for depths in self.stage_depths}
        if len(self.stage_depths) < 2 or len(counts) != 1:
            raise ValueError(
                f'anchors with stages of depths {self.stage_depths} cannot be stitched '
                'stage by stage; allowed are two anchors or more with as many stages '
                '(config key: backbone.anchors)'
            )
        num_stages = counts.pop()
        self.stages = tuple(range(num_stages - 1) if stages is None else stages)
        wrong = [s for s in self.stages if not 0 <= s < num_stages]
        if wrong or len(set(self.stages)) != len(self.stages):
            raise ValueError(
                f'stages={self.stages} to stitch, of anchors with {num_stages}; '
                f'allowed are stages 0 to {num_stages - 1} (config key: '
                'backbone.stages)'
            )
        # First block of every stage, and the depth.
        self._begins = [(0, *accumulate(depths)) for depths in self.stage_depths]
        self._maps = maps
        layers, stitches = {}, []
        depths = [begins[-1] for begins in self._begins]
        for a, depth in enumerate(depths):
            stitches.append(Stitch(a, ANCHOR_KIND, (Segment(a, 0, depth),)))
        for a, last, first in self._joints():
            name = layer_name(a, a + 1, first)
            layers[name] = StitchingLayerSpec(
                Position(a, last), Position(a + 1, first - 1)
            )
            route = Segment(a, 0, last + 1), Segment(a + 1, first, depths[a + 1])
            stitches.append(Stitch(len(stitches), 'FS', route, (name,)))
        if len(stitches) == len(depths):
            raise ValueError(
                f'stages={self.stages} of depths {self.stage_depths} have no place to '
                'change anchor; allowed are stages with two blocks or more in the '
                'slower anchor (config key: backbone.stages)'
            )
        map_layers = self._layers_for_maps() if maps else {}
        super().__init__(depths, stitches, layers | map_layers, map_layers, ids)

    def substitutes(self, block: int) -> tuple[tuple[Position, str], ...]:
        """See :meth:`StitchingSpace.substitutes`; for last blocks of stages alone.

        Raises:
            ValueError: If the space gives no maps, or the block is another one.
        """
        if not self._maps:
            return super().substitutes(block)
        *_, slowest = (self._stage_ends(a) for a in range(len(self.stage_depths)))
        if block not in slowest:
            raise ValueError(
                f'out index {block} of anchors with stages; allowed are the last '
                f'blocks of the stages of the slowest anchor, {tuple(slowest)} (config '
                'key: backbone.out_indices)'
            )
        stage = slowest.index(block)
        return tuple(
            (Position(a, self._stage_ends(a)[stage]), self._map_layer_name(a, stage))
            for a in reversed(range(len(self.stage_depths) - 1))
        )

    def _joints(self) -> Iterator[tuple[int, int, int]]:
        """Anchor, its last block before and the next anchor's first block behind."""
        for stage in self.stages:
            for a, (fast, slow) in enumerate(pairwise(self.stage_depths)):
                d1, d2 = fast[stage], slow[stage]
                for j in range(d2 - 1):
                    # Rounds halves up; a stage four times as deep rounds past its end.
                    last = min((2 * j * d1 + d2) // (2 * d2), d1 - 1)
                    begins = self._begins[a][stage], self._begins[a + 1][stage]
                    yield a, begins[0] + last, begins[1] + j + 1

    def _layers_for_maps(self) -> dict[str, StitchingLayerSpec]:
        *faster, slowest = (self._stage_ends(a) for a in range(len(self.stage_depths)))
        return {
            self._map_layer_name(a, stage): StitchingLayerSpec(
                Position(a, block), Position(len(faster), slowest[stage])
            )
            for a, ends in enumerate(faster)
            for stage, block in enumerate(ends)
        }

    def _map_layer_name(self, anchor: int, stage: int) -> str:
        return f'{layer_name(anchor, len(self.stage_depths) - 1, stage)}_map'

    def _stage_ends(self, anchor: int) -> list[int]:
        """The last block of every stage of an anchor."""
        return [begin - 1 for begin in self._begins[anchor][1:]]
