"""Greedy search for the blocks whose removal changes the predictions least."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from snnet_mm.anchors import Anchor, TokenState
from snnet_mm.costs import cost_table
from snnet_mm.models import (
    ElasticBackbone,
    PrefixStitchingLayer,
    StitchingLayer,
    find_stitched_backbone,
)
from snnet_mm.models.backbones.elastic_backbone import read_prefix
from snnet_mm.models.layers.least_squares import LayerFit

from snnet_mm.utils import check

from .divergence import Predictions

RIDGE = 1e-4
# Removals per step that run to the last block; the error at the gap rejects the others.
SHORTLIST = 4
STATES_BYTES = 2**30


@dataclass
class Chain:
    """Kept blocks, and the divergence from the network's predictions."""

    kept: tuple[int, ...]
    divergence: float = 0.0
    # States of all batches, by the last block run or skipped; -1 is the embedding.
    states: dict[int, list[TokenState]] = field(default_factory=dict, repr=False)


class ChainSearch:
    """Greedy removal of blocks from a network that is stitched to itself.

    Each step tries every skippable block. It fits the map of the resulting gap to the
    state that reaches the gap, and ranks removals by the variance that the map leaves
    unexplained. The best removals run to the last block, with later gaps fitted in
    turn. The step keeps the removal with the least divergence per FLOP saved; see
    :class:`Predictions`.

    The states of all blocks are kept in memory, so use tens of images; see
    :func:`images_wanted`.

    Args:
        model: An mm model with an :class:`ElasticBackbone`, in eval mode.
        batches: Preprocessed images ``(B, 3, H, W)``.
        input_size: Height and width at which FLOPs are counted.
        shortlist: Number of removals per step that run to the last block.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[Tensor],
        input_size: tuple[int, int],
        shortlist: int = SHORTLIST,
    ) -> None:
        self.model, self.shortlist = model, shortlist
        self.backbone = find_stitched_backbone(model)
        (self.anchor,) = self.backbone.anchors
        self.batches = list(batches)
        depth = self.anchor.depth
        maps = self.backbone.out == 'maps'
        self.read = {*self.backbone.out_indices} if maps else set()
        self.skippable = skippable(self.anchor)
        wanted = 'a network with blocks that keep the width and the stride'
        check(self.skippable, 'model.backbone', type(self.anchor).__name__, wanted)
        self.savings = self._savings(input_size)
        self.total = cost_table(model, input_size)[0].flops
        self.predictions = Predictions(model, input_size)
        self._errors: dict[tuple[tuple[int, ...], ...], float] = {}
        with torch.no_grad():
            self.whole = self._run(Chain(tuple(range(depth))))
            numbers = range(len(self.batches))
            self.targets = [self._read(self.whole, n) for n in numbers]

    @torch.no_grad()
    def run(
        self, fewest: int = 1, begin: Chain | None = None, least_flops: float = 0
    ) -> Iterator[Chain]:
        """Yield the best chain of each length, each one block shorter than the last.

        Args:
            fewest: Number of blocks at which the search stops.
            begin: Chain to start from. Default: the whole network.
            least_flops: FLOPs at which the search stops.
        """
        best = begin or self.whole
        while len(best.kept) > fewest and self.flops(best) > least_flops:
            removable = [b for b in best.kept if b in self.skippable]
            errors = {b: self.local_error(best, b) for b in removable}
            shortlist = sorted(errors, key=errors.get)[: self.shortlist]
            if not shortlist:
                return
            tried = (  # lazy, as each chain keeps its states in memory
                self.extend(best, tuple(i for i in best.kept if i != b), b)
                for b in shortlist
            )
            best = min(tried, key=self.score)
            yield best

    @torch.no_grad()
    def chain(self, kept: Sequence[int]) -> Chain:
        """Return the chain of these blocks, with its states and divergence."""
        kept = tuple(kept)
        skipped = min({*self.whole.kept} - {*kept})
        return self.extend(self.whole, kept, skipped)

    def flops(self, chain: Chain) -> float:
        """Return the FLOPs of the model when it runs a chain."""
        skipped = {*self.whole.kept} - {*chain.kept}
        return self.total - sum(self.savings[i] for i in skipped)

    def score(self, chain: Chain) -> float:
        """Return the divergence per FLOP saved."""
        return chain.divergence / (self.total - self.flops(chain))

    def local_error(self, parent: Chain, block: int) -> float:
        """Return the share of variance that the new gap's map leaves unexplained."""
        kept = {*parent.kept} - {block}
        gap = next(g for g in self._gaps(kept) if g[0] <= block < g[1])
        # The kept blocks before the gap determine the state that reaches it.
        key = gap, tuple(i for i in parent.kept if i < gap[0])
        if key not in self._errors:
            total = left = 0.0
            for x, y in self._map(parent.states[gap[0] - 1], gap[1] - 1):
                target = y.fitted
                left += (x.fitted - target).square().sum().item()
                mean = target.flatten(0, -2).mean(0)
                total += (target - mean).square().sum().item()
            self._errors[key] = left / total if total else left
        return self._errors[key]

    def extend(self, parent: Chain, kept: tuple[int, ...], first: int) -> Chain:
        """Return a chain that equals its parent before block ``first``."""
        chain = Chain(kept, states={})
        begin = next(g[0] for g in self._gaps(kept) if g[0] <= first < g[1])
        chain.states |= {i: s for i, s in parent.states.items() if i < begin}
        self._run(chain, begin)
        distances = [
            self.predictions.distance(self._read(chain, n), target).item()
            for n, target in enumerate(self.targets)
        ]
        chain.divergence = sum(distances) / len(distances)
        return chain

    def _run(self, chain: Chain, begin: int = 0) -> Chain:
        """Compute the states of a chain from block ``begin`` onwards."""
        states, ends = chain.states, dict(self._gaps(chain.kept))
        if not states:
            states[-1] = [self.anchor.embed(images) for images in self.batches]
        i = begin
        while i < self.anchor.depth:
            before = states[i - 1]
            if i in ends:
                i = ends[i]
                states[i - 1] = [x for x, _ in self._map(before, i - 1)]
            else:
                states[i] = [self.anchor.run_block(state, i) for state in before]
                i += 1
        return chain

    def _map(
        self, reached: list[TokenState], target: int
    ) -> list[tuple[TokenState, TokenState]]:
        """Fit the map to block ``target``; return pairs of mapped and network state."""
        wanted = self.whole.states[target]
        dims, device = (
            [s[0].fitted.shape[-1] for s in (reached, wanted)],
            reached[0].fitted.device,
        )
        number = read_prefix(self.anchor, self.backbone.out)
        kind = partial(PrefixStitchingLayer, num_prefix=number)
        layer = (kind if number else StitchingLayer)(*dims).to(device)
        fit = LayerFit(layer, RIDGE, device)
        for x, y in zip(reached, wanted, strict=True):
            fit.update(x, y)
        fit.set_maps()
        pairs = zip(reached, wanted, strict=True)
        return [(layer.map_state(x), y) for x, y in pairs]

    def _read(self, chain: Chain, n: int) -> list[Tensor]:
        """Return the predictions of a chain for a batch."""
        output = chain.states[self.anchor.depth - 1][n]
        if self.backbone.out == 'maps':
            output = tuple(
                self.anchor.to_output(chain.states[b][n], self.backbone.with_cls, j)
                for j, b in enumerate(self.backbone.out_indices)
            )
        return self.predictions.read(self.batches[n], output)

    def _gaps(self, kept: Iterable[int]) -> Iterator[tuple[int, int]]:
        return gaps_of(kept, self.anchor.depth, self.read)

    def _savings(self, input_size: tuple[int, int]) -> dict[int, int]:
        """Return the FLOPs of each skippable block minus those of its map."""
        blocks = range(self.anchor.depth)
        one_less = [tuple(i for i in blocks if i != b) for b in self.skippable]
        config = dict(stitching_layer=None, out=self.backbone.out, chains=one_less)
        config |= dict(out_indices=self.backbone.out_indices)
        config |= dict(with_cls=self.backbone.with_cls)
        probe = ElasticBackbone([self.anchor], **config)
        costs = cost_table(probe, input_size).column('flops')
        return {b: costs[0] - costs[n] for n, b in enumerate(self.skippable, start=1)}


def images_wanted(anchor: Anchor, size: tuple[int, int]) -> int:
    """Return how many images a search needs and can keep in memory.

    Every map needs ten tokens per unknown, which takes 16 to 64 images. If the states
    of all blocks exceed 1 GiB, fewer images are used, but at least four.

    Args:
        anchor: The network.
        size: Height and width of the images.
    """
    scales = zip(anchor.block_dims, anchor.block_strides, strict=True)
    places = [(dim, max(size[0] // s, 1) * max(size[1] // s, 1)) for dim, s in scales]
    wanted = max(-(-10 * dim // tokens) for dim, tokens in places)
    fitting = STATES_BYTES // sum(4 * dim * tokens for dim, tokens in places)
    return max(4, min(max(16, wanted), 64, fitting))


def choose_lengths(flops: dict[int, float], whole: float, budgets: int) -> list[int]:
    """Return lengths of chains whose costs are evenly spaced below the network's.

    Args:
        flops: Cost of the best chain of each length.
        whole: Cost of the network.
        budgets: Number of chains; fewer are returned if lengths coincide.
    """
    least = max(min(flops.values()), whole / 4)
    step = 0.8 * (whole - least) / max(budgets - 1, 1)
    wanted = [least + step * n for n in range(budgets)] if budgets > 1 else [whole / 2]
    chosen = {min(flops, key=lambda n: abs(flops[n] - cost)) for cost in wanted}
    return sorted(chosen, reverse=True)
