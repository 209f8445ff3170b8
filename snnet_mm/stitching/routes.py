"""Routes: the blocks that a stitch runs, by anchor and in order."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from snnet_mm.utils import check

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
    """

    id: int
    kind: str
    segments: tuple[Segment, ...]
    layers: tuple[str, ...] = ()

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The route one step at a time, from the embedding to the last block."""
        entries = (Position(self.segments[0].anchor, -1), *self.layers)
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
    with any later stitch is shared by all stitches in between.
    """

    def key(step: Step) -> tuple[int, int, str]:
        return (-1, -1, step) if isinstance(step, str) else (*step, '')

    return sorted(stitches, key=lambda stitch: list(map(key, stitch.steps)))


def check_route(stitch: Stitch, depths: Sequence[int], layers: Collection[str]) -> None:
    """Raise if a route does not fit anchors of these depths and these layers."""
    segments = tuple(tuple(segment) for segment in stitch.segments)
    k = len(depths)
    runs = all(0 <= a < k and 0 <= i <= j <= depths[a] for a, i, j in segments)
    moves = all(a != b or end < i for (a, _, end), (b, i, _) in pairwise(segments))
    right = segments and runs and moves and segments[0][1] == 0
    right = right and segments[-1][2] == depths[segments[-1][0]]
    wanted = (
        '(anchor, begin, end) from a first to a last block, after each joint in '
        f'another anchor or further on, for anchors of {tuple(depths)} blocks'
    )
    check(right, f'stitches[{stitch.id}].segments', segments, wanted)
    fit = len(stitch.layers) == len(segments) - 1 and set(stitch.layers) <= set(layers)
    key, names = f'stitches[{stitch.id}].layers', ', '.join(sorted(layers))
    check(fit, key, stitch.layers, f'one stitching layer per joint, of: {names}')
