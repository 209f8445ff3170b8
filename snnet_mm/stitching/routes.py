"""Routes: the blocks that a stitch runs, by anchor and in order."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

ANCHOR_KIND = 'anchor'


class Position(NamedTuple):
    """The output of one block of one anchor; block -1 is the anchor's embedding."""

    anchor: int
    block: int


# One step of a route: an embedding, a block, or the name of a stitching layer.
Step = Position | str


class Segment(NamedTuple):
    """The half-open run ``[begin, end)`` of one anchor's blocks."""

    anchor: int
    begin: int
    end: int


class StitchingLayerSpec(NamedTuple):
    """A layer that maps ``source`` to ``target`` and has their widths."""

    source: Position
    target: Position


@dataclass(frozen=True)
class Stitch:
    """One runnable sub-network.

    Args:
        id: The stitch id, an integer whose meaning never changes.
        kind: ``'anchor'``, ``'FS'``, ``'SF'``, ``'FSF'``, ``'SFS'`` or ``'skip'``.
        segments: The route.
        layers: Names of the stitching layers between the segments, one per joint.
        scale: Factor of the sides of its images; see :class:`SkipSpace`.
    """

    id: int
    kind: str
    segments: tuple[Segment, ...]
    layers: tuple[str, ...] = ()
    scale: float = 1.0

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The route one step at a time, from the embedding to the last block."""
        entries: tuple[Step, ...] = (
            Position(self.segments[0].anchor, -1),
            *self.layers,
        )
        steps: list[Step] = []
        for entry, (anchor, begin, end) in zip(entries, self.segments, strict=True):
            steps += [entry, *(Position(anchor, i) for i in range(begin, end))]
        return tuple(steps)

    @property
    def end_anchor(self) -> int:
        """The anchor in whose last block the route ends."""
        return self.segments[-1].anchor

    def runs(self, position: Position) -> bool:
        """Return whether the route runs the block at ``position``."""
        return position in self.steps


def visiting_order(stitches: Iterable[Stitch]) -> list[Stitch]:
    """Sort stitches so that routes with common prefixes are adjacent.

    The order is a depth-first walk of their prefix tree: a prefix that a stitch shares
    with any later stitch is shared by all stitches in between. Images of other scales
    share nothing.
    """

    def key(step: Step) -> tuple[int, int, str]:
        return (-1, -1, step) if isinstance(step, str) else (*step, '')

    return sorted(stitches, key=lambda s: (-s.scale, list(map(key, s.steps))))
