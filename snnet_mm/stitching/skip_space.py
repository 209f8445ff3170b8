"""The space of a network stitched to itself, branch by branch."""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from snnet_mm.utils import check

from .plans import Plan, write_plan
from .routes import ANCHOR_KIND, Position, Segment, Stitch, StitchingLayerSpec
from .space import StitchingSpace, fingerprint_of

SKIP_KIND = 'skip'


class SkipSpace(StitchingSpace):
    """One network and chains of its branches; each chain has its own stitching layers.

    Positions count the steps of the network: its branches, and layers between stages.
    A chain runs each branch whole, with some of its hidden units, or not at all. A
    stitching layer stands for every *narrow* branch, and for every *gap*, a maximal run
    ``[i, j)`` of skipped branches: it maps the state before step ``i`` to the state
    after step ``j - 1``. A gap ends after a step whose map is read, so that every head
    receives its maps.

    Id 0 is the whole network, id ``n`` the n-th chain.

    Args:
        widths: Hidden units of every step when it runs whole.
        chains: Plans of the chains, in descending order of cost.
        blocks: Block of every step; None for steps that always run, such as layers
            between stages.
        read: Blocks whose maps are read. A map is that of the last step of its block.
        skippable: Steps that may be skipped; by default all that have a block.
        ids: See :class:`StitchingSpace`.
        key: Config key or option of the chains, for messages.

    Examples:
        >>> space = SkipSpace((4, 64, 4, 64), [(4, 32, 0, 0)], (0, 0, 1, 1), read=[1])
        >>> space.describe(space[1]), space[1].layers
        ('0:4/32 1:0/0', ('narrow1_1_32', 'skip1_2to4'))
    """

    has_prior = False

    def __init__(
        self,
        widths: Sequence[int],
        chains: Sequence[Plan],
        blocks: Sequence[int | None],
        read: Collection[int] = (),
        skippable: Collection[int] | None = None,
        ids: Collection[int] | None = None,
        key: str = 'backbone.chains',
    ) -> None:
        self.widths, self.blocks, depth = tuple(widths), tuple(blocks), len(widths)
        steps = {i for i, block in enumerate(blocks) if block is not None}
        skippable = steps if skippable is None else {*skippable}
        # The step after which the map of a block is taken; a norm belongs to it.
        last = {b: i for i, b in enumerate(self.blocks) if b is not None}
        final = max(last)
        self._ends = {b: depth - 1 if b == final else i for b, i in last.items()}
        self.plans: dict[int, Plan] = {0: self.widths}
        stitches = [Stitch(0, ANCHOR_KIND, (Segment(0, 0, depth),))]
        layers: dict[str, StitchingLayerSpec] = {}
        self._narrow: dict[str, tuple[int, int]] = {}
        read = {self._ends[block] for block in read}
        substitutes = {Position(0, step): [] for step in sorted(read)}
        for n, chain in enumerate(chains, start=1):
            plan = self._checked(chain, skippable, f'{key}[{n - 1}]')
            segments, names, begin = [], [], 0
            for first, end, units in changes_of(plan, self.widths, read):
                name = f'skip{n}_{first}to{end}'
                if units:
                    name = f'narrow{n}_{first}_{units}'
                    self._narrow[name] = first, units
                source, target = Position(0, first - 1), Position(0, end - 1)
                layers[name] = StitchingLayerSpec(source, target)
                segments.append(Segment(0, begin, first))
                names.append(name)
                begin = end
                if target in substitutes:
                    here = max(
                        (s.end - 1 for s in segments if s.begin < s.end), default=-1
                    )
                    substitutes[target].append((Position(0, here), name))
            segments.append(Segment(0, begin, depth))
            self.plans[n] = plan
            stitches.append(Stitch(n, SKIP_KIND, tuple(segments), tuple(names)))
        super().__init__((depth,), stitches, layers, ids, substitutes)
        used = {name for stitch in self for name in stitch.layers}
        self.layers = {name: layers[name] for name in layers if name in used}

    @property
    def narrow(self) -> dict[str, tuple[int, int]]:
        """Step and hidden units of every narrow branch, by stitching layer."""
        return {
            name: self._narrow[name] for name in self.layers if name in self._narrow
        }

    @property
    def fingerprint(self) -> str:
        """Hash of the network's steps and of the plans by stitch id."""
        return fingerprint_of((self.widths, [self.plans[i] for i in self.ids]))

    def serves(self, stitch: Stitch, place: Position, layer: str | None) -> bool:
        return stitch.runs(place) if layer is None else layer in stitch.layers

    def map_sources(
        self, block: int, anchor: int
    ) -> tuple[tuple[Position, str | None], ...]:
        known = block in self._ends
        check(known, 'backbone.out_indices', block, f'blocks 0 to {max(self._ends)}')
        return super().map_sources(self._ends[block], anchor)

    def branches(self, stitch: Stitch) -> list[tuple[int, int, int]]:
        steps = zip(self.blocks, self.plans[stitch.id], self.widths, strict=True)
        return [(block, *units) for block, *units in steps if block is not None]

    def describe(self, stitch: Stitch) -> str:
        """Return the plan of a chain as text, or ``'network'``."""
        if stitch.kind == ANCHOR_KIND:
            return 'network'
        return write_plan(self.plans[stitch.id], self.blocks)

    def _checked(self, plan: Plan, skippable: Collection[int], key: str) -> Plan:
        """Return a plan after checks.

        Raises:
            ValueError: If it is the whole network, has units that do not exist, or
                skips what cannot be skipped.
        """
        plan = tuple(plan)
        pairs = zip(plan, self.widths, strict=False)
        right = len(plan) == len(self.widths) and all(0 <= n <= w for n, w in pairs)
        check(right, key, plan, f'units of all steps, at most {self.widths}')
        text = write_plan(plan, self.blocks)
        check(
            plan != self.widths, key, text, 'a plan with fewer units than the network'
        )
        fixed = sorted(i for i, n in enumerate(plan) if not n and i not in skippable)
        blocks = [self.blocks[i] for i in fixed]
        wanted = f'all of blocks {blocks}, which change the width or the stride'
        check(not fixed, key, text, wanted)
        return plan


def changes_of(
    plan: Plan, widths: Sequence[int], read: Collection[int] = ()
) -> Iterator[tuple[int, int, int]]:
    """Yield the narrow branches and gaps of a plan in order.

    Each is ``(first, end, units)``: its steps ``[first, end)``, and its number of
    hidden units, 0 for a gap. A gap ends after steps in ``read``.
    """
    skipped = [i for i, units in enumerate(plan) if not units]
    starts = [
        i for i in skipped if i - 1 not in skipped or (i - 1 in read and i - 1 >= 0)
    ]
    gaps = {}
    for first, following in pairwise([*starts, len(plan)]):
        gaps[first] = max(i for i in skipped if first <= i < following) + 1
    for i, (units, width) in enumerate(zip(plan, widths, strict=True)):
        if i in gaps:
            yield i, gaps[i], 0
        elif 0 < units < width:
            yield i, i + 1, units
