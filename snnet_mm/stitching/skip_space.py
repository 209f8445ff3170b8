"""The space of a network stitched to itself: chains that skip some of its blocks."""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from snnet_mm.utils import check, is_whole

from .routes import ANCHOR_KIND, Position, Segment, Stitch, StitchingLayerSpec
from .space import StitchingSpace

SKIP_KIND = 'skip'


class SkipSpace(StitchingSpace):
    """One network and chains of its blocks; each chain has its own stitching layers.

    A chain keeps some blocks. A *gap* is a maximal run ``[i, j)`` of skipped blocks; a
    stitching layer maps the state before block ``i`` to the state after block
    ``j - 1``. A gap ends after a block whose map is read, so that every head receives
    its maps. It never contains a block that changes the width or the stride.

    Id 0 is the whole network, id ``n`` the n-th chain.

    Args:
        depth: Number of blocks of the network.
        chains: Blocks kept by each chain; chains are in descending order of cost.
        read: Blocks whose maps are read.
        skippable: Blocks that may be skipped; by default all.
        ids: See :class:`StitchingSpace`.
    """

    has_prior = False

    def __init__(
        self,
        depth: int,
        chains: Sequence[Sequence[int]],
        read: Collection[int] = (),
        skippable: Collection[int] | None = None,
        ids: Collection[int] | None = None,
    ) -> None:
        skippable = set(range(depth) if skippable is None else skippable)
        stitches = [Stitch(0, ANCHOR_KIND, (Segment(0, 0, depth),))]
        layers: dict[str, StitchingLayerSpec] = {}
        substitutes = {Position(0, block): [] for block in sorted(read)}
        for n, chain in enumerate(chains, start=1):
            kept = check_chain(chain, depth, skippable, f'backbone.chains[{n - 1}]')
            segments, names, begin = [], [], 0
            for first, end in gaps_of(kept, depth, read):
                name = f'skip{n}_{first}to{end}'
                source, target = Position(0, first - 1), Position(0, end - 1)
                layers[name] = StitchingLayerSpec(source, target)
                if target in substitutes:
                    last = max((i for i in kept if i < first), default=-1)
                    substitutes[target].append((Position(0, last), name))
                segments.append(Segment(0, begin, first))
                names.append(name)
                begin = end
            segments.append(Segment(0, begin, depth))
            stitches.append(Stitch(n, SKIP_KIND, tuple(segments), tuple(names)))
        super().__init__((depth,), stitches, layers, ids, substitutes)
        used = {name for stitch in self for name in stitch.layers}
        self.layers = {name: layers[name] for name in layers if name in used}

    def serves(self, stitch: Stitch, place: Position, layer: str | None) -> bool:
        return stitch.runs(place) if layer is None else layer in stitch.layers


def check_chain(
    chain: Sequence[int], depth: int, skippable: Collection[int], key: str
) -> tuple[int, ...]:
    """Validate a chain and return its kept blocks in ascending order.

    Raises:
        ValueError: If a kept block does not exist or is listed twice, if a skipped
            block is not skippable, or if nothing is skipped.
    """
    listed = isinstance(chain, Sequence) and not isinstance(chain, str)
    known = listed and all(is_whole(i, 0) and i < depth for i in chain)
    once = known and len({*chain}) == len(chain) < depth
    check(once, key, chain, f'fewer than all of the blocks 0 to {depth - 1}, each once')
    fixed = sorted({*range(depth)} - {*skippable} - {*chain})
    allowed = f'blocks with {fixed}, which change the width or the stride'
    check(not fixed, key, tuple(chain), allowed)
    return tuple(sorted(chain))


def gaps_of(
    kept: Collection[int], depth: int, read: Collection[int] = ()
) -> Iterator[tuple[int, int]]:
    """Yield the gaps ``[first, end)`` of a chain in order; see :class:`SkipSpace`."""
    skipped = [i for i in range(depth) if i not in kept]
    starts = [
        i for i in skipped if i - 1 not in skipped or (i - 1 in read and i - 1 >= 0)
    ]
    for first, following in pairwise([*starts, depth]):
        yield first, max(i for i in skipped if first <= i < following) + 1
