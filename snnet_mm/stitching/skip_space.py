"""The space of a network stitched to itself, branch by branch."""

from collections.abc import Collection, Iterator, Sequence

from snnet_mm.utils import check

from .plans import Plan, write_plan
from .routes import ANCHOR_KIND, Position, Segment, Stitch, StitchingLayerSpec
from .space import StitchingSpace, fingerprint_of


class SkipSpace(StitchingSpace):
    """One network and chains of its branches; each chain has its own stitching layers.

    Positions count the steps of the network: its branches, and layers between stages.
    A chain runs each branch whole, with some of its hidden units, or not at all. A
    stitching layer stands for every *narrow* branch, and for every *gap*, a maximal run
    of skipped branches that ends at the latest after a step whose map is read. Id 0 is
    the whole network, id ``n`` the n-th chain.

    Args:
        widths: Hidden units of every step when it runs whole.
        chains: Plans of the chains, in descending order of cost.
        blocks: Block of every step; None for steps that always run.
        read: Blocks whose maps are read. A map is that of the last step of its block.
        skippable: Steps that may be skipped; by default all that have a block.
        ids: See :class:`StitchingSpace`.
        key: Config key or option of the chains, for messages.
        scales: Factors of the sides of the images that chains run on. Default: 1.

    Attributes:
        read: Steps whose maps are read.
        narrow: Step and hidden units of every narrow branch, by stitching layer.

    Raises:
        ValueError: If a chain is the whole network, or skips what cannot be skipped.

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
        scales: Sequence[float] | None = None,
    ) -> None:
        self.widths, self.blocks, depth = tuple(widths), tuple(blocks), len(widths)
        # The step after which the map of a block is taken; a norm belongs to it.
        self._ends = {b: i for i, b in enumerate(self.blocks) if b is not None}
        self._ends[max(self._ends)] = depth - 1
        whole = {i for i, block in enumerate(blocks) if block is None}
        fixed = whole if skippable is None else {*range(depth)} - {*skippable}
        self.plans: dict[int, Plan] = {0: self.widths}
        stitches = [Stitch(0, ANCHOR_KIND, (Segment(0, 0, depth),))]
        layers: dict[str, StitchingLayerSpec] = {}
        narrow: dict[str, tuple[int, int]] = {}
        self.read = {self._ends[block] for block in read}
        substitutes: dict[Position, list[tuple[Position, str]]] = {
            Position(0, step): [] for step in sorted(self.read)
        }
        scales = [1.0] * len(chains) if scales is None else scales
        for n, (chain, scale) in enumerate(zip(chains, scales, strict=True), start=1):
            plan, place = tuple(chain), f'{key}[{n - 1}]'
            text = write_plan(plan, self.blocks)
            expected = 'a plan with fewer units than the network, or a scale'
            check(plan != self.widths or scale != 1, place, text, expected)
            lost = sorted(self.blocks[i] for i in fixed if not plan[i])
            expected = f'units in all of blocks {lost}, which change width or stride'
            check(not lost, place, text, expected)
            segments, names, begin = [], [], 0
            for first, end, units in changes_of(plan, self.widths, self.read):
                name = f'skip{n}_{first}to{end}'
                if units:
                    name = f'narrow{n}_{first}_{units}'
                    narrow[name] = first, units
                source, target = Position(0, first - 1), Position(0, end - 1)
                layers[name] = StitchingLayerSpec(source, target)
                segments.append(Segment(0, begin, first))
                names.append(name)
                begin = end
                if target in substitutes:
                    run = [-1, *(s.end - 1 for s in segments if s.begin < s.end)]
                    substitutes[target].append((Position(0, run[-1]), name))
            segments.append(Segment(0, begin, depth))
            self.plans[n] = plan
            route = tuple(segments), tuple(names)
            stitches.append(Stitch(n, 'skip', *route, scale))
        super().__init__((depth,), stitches, layers, ids, substitutes)
        used = {name for stitch in self for name in stitch.layers}
        self.layers = {name: layers[name] for name in layers if name in used}
        self.narrow = {name: narrow[name] for name in self.layers if name in narrow}

    @property
    def fingerprint(self) -> str:
        """Hash of the network's steps, and of plans and scales by stitch id."""
        scales = [stitch.scale for stitch in self if stitch.scale != 1]
        plans = [self.plans[i] for i in self.ids]
        return fingerprint_of((self.widths, plans, *scales))

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
        return [(b, running, all_) for b, running, all_ in steps if b is not None]

    def describe(self, stitch: Stitch) -> str:
        """Return the plan of a chain as text, or ``'network'``."""
        if stitch.kind == ANCHOR_KIND:
            return 'network'
        return self.write(self.plans[stitch.id], stitch.scale)

    def write(self, plan: Plan, scale: float = 1) -> str:
        """Return a plan at a scale as text; see :func:`write_plan`."""
        whole = plan == self.widths and scale != 1
        return write_plan(() if whole else plan, () if whole else self.blocks, scale)


def changes_of(
    plan: Plan, widths: Sequence[int], read: Collection[int] = ()
) -> Iterator[tuple[int, int, int]]:
    """Yield the narrow branches and gaps of a plan in order.

    Each is ``(first, end, units)``: its steps ``[first, end)``, and its number of
    hidden units, 0 for a gap. A gap ends after steps in ``read``.
    """
    begin = None  # of the current gap
    for i, (units, width) in enumerate(zip(plan, widths, strict=True)):
        if not units:
            begin = i if begin is None else begin
            if i in read or i + 1 == len(plan) or plan[i + 1]:
                yield begin, i + 1, 0
                begin = None
        elif units < width:
            yield i, i + 1, units
