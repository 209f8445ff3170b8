"""The two-way space of SN-Netv2 and its one-way subsets."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, pairwise

from snnet_mm.utils import check

from .routes import ANCHOR_KIND, Position, Segment, Stitch, StitchingLayerSpec
from .space import StitchingSpace, Substitute, layer_name

KINDS = ('FS', 'SF', 'SFS', 'FSF')


class TwoWaySpace(StitchingSpace):
    """The two-way space of SN-Netv2 (paper, section 4.1) for any depths.

    For two anchors, slow block ``j`` belongs to fast block ``m(j) = floor(j * d1 /
    d2)``, and ``e(i)`` is the last slow block that belongs to fast block ``i``. At
    every boundary ``i = 0 .. d1-2`` a route may leave the fast anchor after block ``i``
    or the slow anchor after block ``e(i)``, and continue in the other. Three or more
    anchors form a chain of such pairs, and no route leaves its pair. There are ``k +
    sum of d * (d - 1)`` stitches of k anchors, summed over all but the slowest: 134 for
    depths 12/24, 267 for 12/12/24.

    Ids follow the authors' code: first the anchors, fast -> slow, then pair by pair FS,
    SF, SFS, FSF, with boundaries ascending. FS after the last fast block would run no
    slow block, so its id is unused: ``d1 + 1`` for two anchors.

    A block of the slowest anchor is substituted by the block to which it belongs, found
    pair by pair down the chain. One stitching layer, fitted to the last block that it
    substitutes, projects its map straight to the slowest width.

    Args:
        depths: Number of blocks of every anchor, ordered fast -> slow.
        kinds: Kinds of stitches besides the anchors; ids do not depend on it.
            ``('FS',)`` is the space of SN-Netv1.
        ids: See :class:`StitchingSpace`.
        maps: Whether to add layers for feature maps. If not, FS stitches still keep
            the last FS layer, which the authors' classifiers contain.
        end_maps: Whether feature maps come from the anchor in which a route ends.
            Blocks of it that the route lacks are substituted in the same way, also by
            slower blocks, through the layers of SF stitches.
    """

    def __init__(
        self,
        depths: Sequence[int],
        kinds: Collection[str] = KINDS,
        ids: Collection[int] | None = None,
        maps: bool = True,
        end_maps: bool = False,
    ) -> None:
        self.depths = tuple(depths)
        ordered = list(depths) == sorted(depths) and len(depths) > 1 and depths[0] > 0
        expected = 'at least two anchors, fast -> slow, in ascending order of depth'
        check(ordered, 'backbone.anchors', self.depths, expected)
        check(set(kinds) <= set(KINDS), 'backbone.kinds', tuple(kinds), KINDS)
        stitches = [
            Stitch(n, kind, *self._route(first, other, cuts))
            for n, (kind, first, other, cuts) in enumerate(self._numbered_routes())
            if cuts != (self.depths[first] - 1,) and kind in (ANCHOR_KIND, *kinds)
        ]
        last = layer_name(len(depths) - 2, len(depths) - 1, depths[-2] - 1)
        unused = [last] if 'FS' in kinds else []
        specs = self._layer_specs()
        found = self._substitutes_of_maps(specs, end_maps) if maps else None
        super().__init__(depths, stitches, specs, ids, found, unused, end_maps)

    def _substitutes_of_maps(
        self, specs: Mapping[str, StitchingLayerSpec], end_maps: bool
    ) -> dict[Position, tuple[Substitute, ...]]:
        """Return the substitutes and their layers for every place that serves a map."""
        found = {}
        for block in range(self.depths[-1]):
            places = [Position(len(self.depths) - 1, block)]
            for a in reversed(range(len(self.depths) - 1)):
                below = places[-1].block * self.depths[a] // self.depths[a + 1]
                places.append(Position(a, below))
            for end in places if end_maps else places[:1]:
                names = [
                    layer_name(other.anchor, end.anchor, min(other, end).block)
                    for other in places
                    if other != end
                ]
                found[end] = tuple((specs[name].source, name) for name in names)
        return found

    def _numbered_routes(self) -> Iterator[tuple[str, int, int, tuple[int, ...]]]:
        """Yield the kind, first and other anchor, and boundaries of routes, by id."""
        for a in range(len(self.depths)):
            yield ANCHOR_KIND, a, a, ()
        for a, b in pairwise(range(len(self.depths))):
            cuts = range(self.depths[a] - 1)
            yield from (('FS', a, b, (i,)) for i in range(self.depths[a]))
            yield from (('SF', b, a, (i,)) for i in cuts)
            yield from (('SFS', b, a, two) for two in combinations(cuts, 2))
            yield from (('FSF', a, b, two) for two in combinations(cuts, 2))

    def _route(
        self, anchor: int, other: int, cuts: Sequence[int]
    ) -> tuple[tuple[Segment, ...], tuple[str, ...]]:
        """Return segments and layers of the route that changes anchor at ``cuts``."""
        segments, layers, begin, fast = [], [], 0, min(anchor, other)
        for i in cuts:
            segments.append(Segment(anchor, begin, self._last(fast, i, anchor) + 1))
            layers.append(layer_name(anchor, other, i))
            anchor, other = other, anchor
            begin = self._last(fast, i, anchor) + 1
        segments.append(Segment(anchor, begin, self.depths[anchor]))
        return tuple(segments), tuple(layers)

    def _layer_specs(self) -> dict[str, StitchingLayerSpec]:
        """Return layers both ways between all anchors; long chains use few of them."""
        specs = {}
        for fast, slow in combinations(range(len(self.depths)), 2):
            for a, b in ((fast, slow), (slow, fast)):
                for i in range(self.depths[fast]):
                    ends = (Position(x, self._last(fast, i, x)) for x in (a, b))
                    specs[layer_name(a, b, i)] = StitchingLayerSpec(*ends)
        return specs

    def _last(self, fast: int, i: int, anchor: int) -> int:
        """Return an anchor's last block that belongs to block ``i`` of ``fast``."""
        for d1, d2 in pairwise(self.depths[fast : anchor + 1]):
            i = ((i + 1) * d2 - 1) // d1
        return i
