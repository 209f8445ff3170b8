"""The space of SN-Netv1 for anchors of equal depth: stitching as sliding windows."""

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, pairwise, product

from snnet_mm.utils import check

from .routes import ANCHOR_KIND, Position, Segment, Stitch, StitchingLayerSpec
from .space import StitchingSpace, layer_name

Joint = tuple[int, int]  # last block before, first block after


class SlidingWindowSpace(StitchingSpace):
    """One-way stitches of k anchors of equal depth (SN-Netv1, section 3.2).

    A window of ``kernel`` blocks slides over both anchors of a pair by ``stride``, and
    is cut at their end. A joint leaves one anchor after any block in the window and
    enters the other at any block in it. All joints of a window share one stitching
    layer, which is fitted to all of them; a joint in two windows belongs to the first.

    Ids follow the authors' code: the anchors, fast -> slow, then pair by pair the
    joints in ascending order within each window, then routes through more than two
    anchors. A slow-to-fast stitch has the id of the fast-to-slow stitch with the same
    joints.

    Args:
        depths: Number of blocks of every anchor, all equal, ordered fast -> slow.
        kernel: Number of blocks in a window.
        stride: Number of blocks by which the window moves.
        nearest: Whether to stitch only anchors that are adjacent in cost; otherwise
            any two are stitched, and routes may pass through several.
        ids: See :class:`StitchingSpace`.
        direction: ``'FS'``, fast to slow, or ``'SF'`` (figure 9a).
    """

    def __init__(
        self,
        depths: Sequence[int],
        kernel: int = 2,
        stride: int = 1,
        nearest: bool = True,
        ids: Collection[int] | None = None,
        direction: str = 'FS',
    ) -> None:
        even = len(depths) > 1 and len(set(depths)) == 1
        expected = 'at least two anchors of equal depth, for sliding windows'
        check(even, 'backbone.anchors', tuple(depths), expected)
        depth = depths[0]
        check(0 < kernel <= depth, 'backbone.kernel', kernel, f'1 to {depth} blocks')
        check(0 < stride <= kernel, 'backbone.stride', stride, f'1 to {kernel} blocks')
        self._depth = depth
        self._windows = _joints_by_window(depth, kernel, stride)
        anchors = range(len(depths))
        pairs = [*(pairwise(anchors) if nearest else combinations(anchors, 2))]
        paths: list[tuple[int, ...]] = [*((a,) for a in anchors), *pairs]
        if not nearest:
            for length in range(3, len(depths) + 1):
                paths += combinations(anchors, length)
        if direction == 'SF':
            pairs = [(b, a) for a, b in pairs]
            paths = [path[::-1] for path in paths]
        routes = [route for path in paths for route in self._routes(path)]
        stitches = [
            Stitch(n, direction if layers else ANCHOR_KIND, segments, layers)
            for n, (segments, layers) in enumerate(routes)
        ]
        layers = {
            layer_name(a, b, window): StitchingLayerSpec(
                Position(a, window * stride), Position(b, window * stride - 1)
            )
            for a, b in pairs
            for window in sorted(set(self._windows.values()))
        }
        super().__init__(depths, stitches, layers, ids=ids)

    def _routes(
        self, path: tuple[int, ...]
    ) -> Iterator[tuple[tuple[Segment, ...], tuple[str, ...]]]:
        """Yield segments and stitching layers of every route through these anchors."""
        heads: list[tuple[tuple[Segment, ...], tuple[str, ...], int]] = [((), (), 0)]
        for a, b in pairwise(path):
            heads = [
                (
                    (*segments, Segment(a, begin, last + 1)),
                    (*layers, layer_name(a, b, window)),
                    first,
                )
                for segments, layers, begin in heads
                for (last, first), window in self._windows.items()
                if last >= begin
            ]
        for segments, layers, begin in heads:
            yield (*segments, Segment(path[-1], begin, self._depth)), layers


def _joints_by_window(depth: int, kernel: int, stride: int) -> dict[Joint, int]:
    """Return the first window that contains each joint, in the order of ids."""
    joints: dict[Joint, int] = {}
    for window, start in enumerate(range(0, depth, stride)):
        blocks = range(start, min(start + kernel, depth))
        for joint in product(blocks, blocks):
            joints.setdefault(joint, window)
    return joints
