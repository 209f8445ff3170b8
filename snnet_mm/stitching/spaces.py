"""Stitching spaces: all stitches of a set of anchors, numbered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from .routes import (
    ANCHOR_KIND,
    Position,
    Segment,
    Stitch,
    StitchingLayerSpec,
    check_route,
)

FAST, SLOW = 0, 1


class StitchingSpace:
    """All stitches of a set of anchors, by stitch id.

    Args:
        depths: Number of blocks of every anchor, ordered fast -> slow.
        stitches: The stitches. Ids may have gaps, they never change their meaning.
        layers: The stitching layers that routes and feature maps use, by name.

    Raises:
        ValueError: If a route cannot be run or names an unknown stitching layer.
    """

    def __init__(
        self,
        depths: Sequence[int],
        stitches: Sequence[Stitch],
        layers: Mapping[str, StitchingLayerSpec],
    ) -> None:
        self.depths = tuple(depths)
        self.layers = dict(layers)
        self.anchor_names = (
            ('fast', 'slow')
            if len(self.depths) == 2
            else tuple(f'anchor{i}' for i in range(len(self.depths)))
        )
        for stitch in stitches:
            check_route(stitch, self.depths)
            for name in stitch.layers:
                if name not in self.layers:
                    raise ValueError(
                        f'stitch {stitch.id} crosses by stitching layer {name!r}; '
                        f'there are {sorted(self.layers)}'
                    )
        self._stitches = {s.id: s for s in sorted(stitches, key=lambda s: s.id)}
        if len(self._stitches) != len(stitches):
            raise ValueError('two stitches of a stitching space share an id')

    def __len__(self) -> int:
        return len(self._stitches)

    def __iter__(self) -> Iterator[Stitch]:
        return iter(self._stitches.values())

    def __getitem__(self, stitch_id: int) -> Stitch:
        try:
            return self._stitches[stitch_id]
        except KeyError:
            raise ValueError(
                f'stitch id {stitch_id!r} is not in the stitching space; allowed are '
                f'{_ranges(self.ids)}'
            ) from None

    @property
    def ids(self) -> tuple[int, ...]:
        """All stitch ids, ascending."""
        return tuple(self._stitches)

    @property
    def anchor_ids(self) -> tuple[int, ...]:
        """Stitch ids of the anchors themselves, fast -> slow."""
        return tuple(s.id for s in self if s.kind == ANCHOR_KIND)

    def describe(self, stitch: Stitch) -> str:
        """The route for people, such as ``'fast[0:4] > slow[8:24]'``."""
        return ' > '.join(
            f'{self.anchor_names[s.anchor]}[{s.begin}:{s.end}]' for s in stitch.segments
        )


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

    Raises:
        ValueError: If there are not two depths or the fast anchor is the deeper one.
    """

    def __init__(self, depths: Sequence[int]) -> None:
        if len(depths) != 2 or not 1 <= depths[FAST] <= depths[SLOW]:
            raise ValueError(
                f'anchors of depths {tuple(depths)} cannot be stitched two ways; '
                'allowed are two anchors, ordered fast -> slow, the fast one no deeper '
                'than the slow one (config key: anchors)'
            )
        self.depths = tuple(depths)
        d1, d2 = self.depths
        self._fast_block_of = [j * d1 // d2 for j in range(d2)]
        self._last_slow_block = {i: j for j, i in enumerate(self._fast_block_of)}
        stitches = [
            Stitch(n, kind, *self._route(anchor, cuts))
            for n, (kind, anchor, cuts) in enumerate(self._numbered_routes())
            if cuts != (d1 - 1,)
        ]
        super().__init__(depths, stitches, self._layer_specs())

    def stand_in(self, slow_block: int) -> tuple[Position, str]:
        """What serves the features of a slow block to routes that do not run it.

        Returns:
            The fast block that ``slow_block`` belongs to, which every such route runs,
            and the stitching layer that projects it to the slow width.
        """
        i = self._fast_block_of[slow_block]
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


def _ranges(ids: Sequence[int]) -> str:
    """``(0, 1, 2, 4)`` as ``'0-2, 4'``."""
    runs: list[list[int]] = []
    for i in ids:
        if runs and i == runs[-1][1] + 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ', '.join(f'{a}-{b}' if a < b else f'{a}' for a, b in runs)
