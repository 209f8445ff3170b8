"""The two-way space of SN-Netv2, and its fast-to-slow part, the space of SN-Netv1."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

from .routes import ANCHOR_KIND, Position, Segment, Stitch, StitchingLayerSpec
from .space import StitchingSpace

FAST, SLOW = 0, 1
KINDS = ('FS', 'SF', 'SFS', 'FSF')


class TwoWaySpace(StitchingSpace):
    """The two-way space of SN-Netv2 (paper, section 4.1) for any two depths.

    Slow block ``j`` belongs to fast block ``m(j) = floor(j * d1 / d2)``, and ``e(i)``
    is the last slow block that belongs to fast block ``i``. At every boundary
    ``i = 0 .. d1-2`` a route may leave the fast anchor after block ``i`` or the slow
    one after block ``e(i)`` and go on in the other. Ids follow the authors: 0 fast, 1
    slow, then FS, SF, SFS, FSF. FS after the last fast block would run no slow block:
    its id, ``d1 + 1``, stays free.

    Args:
        depths: Number of blocks of the fast and of the slow anchor.
        kinds: Kinds of stitches besides the anchors. Ids keep their numbers when
            kinds are left out; with ``('FS',)`` alone it is the space of SN-Netv1.
        ids: Keep only these stitches, and the anchors.

    Raises:
        ValueError: If there are not two depths, the fast anchor is the deeper one, or
            a kind or id is unknown.
    """

    def __init__(
        self,
        depths: Sequence[int],
        kinds: Collection[str] = KINDS,
        ids: Collection[int] | None = None,
    ) -> None:
        if len(depths) != 2 or not 1 <= depths[FAST] <= depths[SLOW]:
            raise ValueError(
                f'anchors of depths {tuple(depths)} cannot be stitched two ways; '
                'allowed are two anchors, ordered fast -> slow, the fast one no deeper '
                'than the slow one (config key: anchors)'
            )
        unknown = sorted(set(kinds) - set(KINDS))
        if unknown:
            raise ValueError(
                f'kinds={tuple(kinds)} of stitches; allowed are {KINDS} (config key: '
                'backbone.kinds)'
            )
        self.depths = tuple(depths)
        d1, d2 = self.depths
        self._fast_block_of = [j * d1 // d2 for j in range(d2)]
        self._last_slow_block = {i: j for j, i in enumerate(self._fast_block_of)}
        stitches = [
            Stitch(n, kind, *self._route(anchor, cuts))
            for n, (kind, anchor, cuts) in enumerate(self._numbered_routes())
            if cuts != (d1 - 1,) and kind in (ANCHOR_KIND, *kinds)
        ]
        serving = [self.layer_name(FAST, i) for i in range(d1)]
        super().__init__(depths, stitches, self._layer_specs(), serving, ids)

    def stand_in(self, block: int) -> tuple[Position, str]:
        """See :meth:`StitchingSpace.stand_in`: the fast block it belongs to."""
        i = self._fast_block_of[block]
        return Position(FAST, i), self.layer_name(FAST, i)

    @staticmethod
    def layer_name(from_anchor: int, fast_block: int) -> str:
        """Name of the stitching layer that leaves ``from_anchor`` at a boundary."""
        return f'{from_anchor}to{_other(from_anchor)}_{fast_block}'

    def _numbered_routes(self) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        """Kind, first anchor and boundaries of every route, in the order of ids."""
        d1 = self.depths[FAST]
        yield ANCHOR_KIND, FAST, ()
        yield ANCHOR_KIND, SLOW, ()
        yield from (('FS', FAST, (i,)) for i in range(d1))
        yield from (('SF', SLOW, (i,)) for i in range(d1 - 1))
        yield from (('SFS', SLOW, cuts) for cuts in combinations(range(d1 - 1), 2))
        yield from (('FSF', FAST, cuts) for cuts in combinations(range(d1 - 1), 2))

    def _route(
        self, anchor: int, cuts: Sequence[int]
    ) -> tuple[tuple[Segment, ...], tuple[str, ...]]:
        """Segments and layers of the route that changes anchor at ``cuts``."""
        segments, layers, begin = [], [], 0
        for i in cuts:
            segments.append(Segment(anchor, begin, self._block_at(anchor, i) + 1))
            layers.append(self.layer_name(anchor, i))
            anchor = _other(anchor)
            begin = self._block_at(anchor, i) + 1
        segments.append(Segment(anchor, begin, self.depths[anchor]))
        return tuple(segments), tuple(layers)

    def _layer_specs(self) -> dict[str, StitchingLayerSpec]:
        # The last fast block has an FS layer too: no joint, it only serves features.
        d1 = self.depths[FAST]
        joints = [(FAST, i) for i in range(d1)] + [(SLOW, i) for i in range(d1 - 1)]
        return {
            self.layer_name(anchor, i): StitchingLayerSpec(
                Position(anchor, self._block_at(anchor, i)),
                Position(_other(anchor), self._block_at(_other(anchor), i)),
            )
            for anchor, i in joints
        }

    def _block_at(self, anchor: int, boundary: int) -> int:
        """The last block of ``anchor`` before a boundary."""
        return boundary if anchor == FAST else self._last_slow_block[boundary]


def _other(anchor: int) -> int:
    return SLOW if anchor == FAST else FAST
