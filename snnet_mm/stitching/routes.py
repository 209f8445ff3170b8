"""Routes: which blocks of which anchor a stitch runs, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

ANCHOR_KIND = 'anchor'


class Position(NamedTuple):
    """The output of one block of one anchor; block -1 is the anchor's embedding."""

    anchor: int
    block: int


# What a route consists of: an embedding or block, or the name of a stitching layer.
Step = Position | str


class Segment(NamedTuple):
    """The half-open run ``[begin, end)`` of one anchor's blocks."""

    anchor: int
    begin: int
    end: int


class StitchingLayerSpec(NamedTuple):
    """What a stitching layer maps: ``source`` activations to ``target`` activations.

    The target is also what the layer is fitted to by least squares.
    """

    source: Position
    target: Position


@dataclass(frozen=True)
class Stitch:
    """One runnable sub-network.

    Args:
        id: The stitch id, an integer that never changes its meaning.
        kind: ``'anchor'``, ``'FS'``, ``'SF'``, ``'FSF'`` or ``'SFS'``.
        segments: The route.
        layers: Names of the stitching layers between the segments, one per joint.
    """

    id: int
    kind: str
    segments: tuple[Segment, ...]
    layers: tuple[str, ...] = ()

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The route one step at a time, from the embedding to the last block."""
        steps: list[Step] = [Position(self.segments[0].anchor, -1)]
        for layer, (anchor, begin, end) in zip(
            (None, *self.layers), self.segments, strict=True
        ):
            steps += [layer] if layer is not None else []
            steps += [Position(anchor, i) for i in range(begin, end)]
        return tuple(steps)

    @property
    def end_anchor(self) -> int:
        """The anchor whose last block the route ends in."""
        return self.segments[-1].anchor

    def runs(self, position: Position) -> bool:
        """Whether the route runs the block at ``position``."""
        return position in self.steps


def check_route(stitch: Stitch, depths: Sequence[int], layers: Collection[str]) -> None:
    """Check that a route is one that a backbone of these depths can run.

    Args:
        stitch: The stitch.
        depths: Number of blocks of every anchor.
        layers: Names of the stitching layers there are.

    Raises:
        ValueError: If a segment is empty or leaves its anchor, if two neighbouring
            segments share an anchor, if the route does not begin with a block 0 and
            end with a last block, or if a joint lacks its stitching layer.
    """
    segments = stitch.segments
    where = f'stitch {stitch.id} ({stitch.kind}) has route {segments}'
    if not segments:
        raise ValueError(f'{where}, which runs no block')
    for anchor, begin, end in segments:
        if not 0 <= anchor < len(depths):
            raise ValueError(f'{where}, but there are {len(depths)} anchors')
        if not 0 <= begin < end <= depths[anchor]:
            raise ValueError(
                f'{where}, but [{begin}, {end}) is not a run of blocks of anchor '
                f'{anchor}, whose depth is {depths[anchor]}'
            )
    if any(a.anchor == b.anchor for a, b in zip(segments, segments[1:], strict=False)):
        raise ValueError(f'{where}, in which a joint does not change the anchor')
    if segments[0].begin != 0 or segments[-1].end != depths[segments[-1].anchor]:
        raise ValueError(f'{where}, which is not from a first to a last block')
    if len(stitch.layers) != len(segments) - 1:
        raise ValueError(f'{where}, but stitching layers {stitch.layers}')
    for name in stitch.layers:
        if name not in layers:
            raise ValueError(
                f'{where} and crosses by stitching layer {name!r}; there are '
                f'{sorted(layers)}'
            )
