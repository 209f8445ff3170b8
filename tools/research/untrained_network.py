"""A trained network whose steps are replaced, for ``untrained_methods.py``."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from snnet_mm.anchors import Branch, TokenState
from snnet_mm.costs import cost_table
from snnet_mm.elastic import elastic_model
from snnet_mm.elastic.sensitivity import PredictionDistance
from snnet_mm.models import LeastSquares, NarrowBranch
from snnet_mm.models.layers.narrow_branch import UnitOrder
from snnet_mm.utils import check

RIDGE = 1e-4  # of affine maps in place of blocks, relative, as in make_elastic
Layer = Callable[[TokenState], TokenState]
Layers = Mapping[int, Layer]  # in place of steps of the network
Run = Callable[[Tensor], object]  # from images to the output of the backbone


class Variant(NamedTuple):
    """A network within a budget.

    ``share`` is the budget, and ``setting`` the choice of the method in words.
    """

    method: str
    share: float
    setting: str
    flops: int
    run: Run


class Network:
    """A trained network, its budgets, and the images that all methods read.

    Args:
        network: The mm model.
        fitted: Training images ``(B, 3, H, W)`` that maps are fitted on, in batches.
        compared: Others, by whose predictions settings of a method are chosen.
        shares: Budgets, shares of the FLOPs.
        of_branches: Whether shares are of the FLOPs of the branches, as of detectors
            with costly heads, not of all FLOPs.
    """

    def __init__(
        self,
        network: nn.Module,
        fitted: Sequence[Tensor],
        compared: Sequence[Tensor],
        shares: Sequence[float],
        of_branches: bool = False,
    ) -> None:
        self.network = network
        self.model = elastic_model(network).requires_grad_(False)
        self.backbone, self.shares = self.model.backbone, shares
        self.view = self.backbone.view
        self.fitted, self.compared = fitted, compared
        self.size = tuple(self.fitted[0].shape[-2:])
        ends, maps = self.view.ends, self.backbone.out == 'maps'
        self.read = [ends[i] for i in self.backbone.out_indices] if maps else []
        self._orders: list[UnitOrder] = []
        table = cost_table(self.model, self.size)
        self.flops, scope = table[0].flops, table.scope
        self.predictions = PredictionDistance(self.model, scope)
        whole = self._count(partial(self.run, {}))
        self._others = self.flops - whole  # neck and heads, which no method changes
        none = dict.fromkeys(self.branches(), skip)
        self._saved = whole - self._count(partial(self.run, none))
        self._saved = self._saved if of_branches else self.flops

    def limit(self, share: float) -> float:
        """Return the FLOPs of a budget."""
        return self.flops - (1 - share) * self._saved

    @torch.no_grad()
    def _count(self, run: Run) -> int:
        counter = FlopCounterMode(display=False)
        with sdpa_kernel(SDPBackend.MATH), counter:
            run(self.fitted[0][:1])
        return counter.get_total_flops() // 2

    def cost(self, run: Run | Layers) -> int:
        """Return the FLOPs of the network if its backbone is a run, or has layers."""
        run = partial(self.run, run) if isinstance(run, Mapping) else run
        return self._others + self._count(run)

    def most(self, share: float, most: int, build: Callable) -> int:
        """Return the largest number, up to ``most``, that meets a budget; else -1.

        ``build`` returns the run or layers of a number; more cost more.
        """
        cost = lambda number: self.cost(build(number))  # noqa: E731
        return bisect_right(range(most + 1), self.limit(share), key=cost) - 1

    def variant(
        self, method: str, share: float, setting: str, run: Run | Layers
    ) -> Variant:
        """Return a variant, whose FLOPs are counted."""
        whole = partial(self.run, run) if isinstance(run, Mapping) else run
        return Variant(method, share, setting, self.cost(run), whole)

    def best(
        self, method: str, share: float, runs: Mapping[str, Run | Layers]
    ) -> Variant:
        """Return the variant of the setting with least divergence."""
        name = min(runs, key=lambda run: self.divergence(runs[run]))
        return self.variant(method, share, name, runs[name])

    def branches(self, kind: str = '') -> list[int]:
        """Return the steps that are branches, of a kind or of both."""
        steps = enumerate(self.view.steps)
        return [i for i, s in steps if s.branch is not None and kind in s.kind]

    def of_block(self, block: int) -> list[int]:
        """Return the branches of a block."""
        return [i for i in self.branches() if self.view.steps[i].block == block]

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.view.anchor.depth

    def run(
        self,
        layers: Layers,
        images: Tensor,
        begin: int = 0,
        state: TokenState | None = None,
        read: Mapping[int, TokenState] | None = None,
    ) -> object:
        """Return the output of the backbone, some of whose steps are layers.

        Of a run that goes on at step ``begin``, ``state`` is the state before it and
        ``read`` contains the states of maps.
        """
        state = self.view.embed(images) if state is None else state
        read = dict(read or {})
        for i in range(begin, self.view.depth):
            state = self.step(layers, state, i)
            read |= {i: state} if i in self.read else {}
        return self.output(state, read)

    def step(self, layers: Layers, state: TokenState, i: int) -> TokenState:
        """Run one step."""
        return layers[i](state) if i in layers else self.view.run_block(state, i)

    def output(self, state: TokenState, read: Mapping[int, TokenState]) -> object:
        """Return the output of the backbone from its last state and those of maps."""
        if self.backbone.out == 'end':
            return state
        return tuple(
            self.view.to_output(read[i], self.backbone.with_cls, place)
            for place, i in enumerate(self.read)
        )

    def features(self, output: object) -> Tensor:
        """Return the last features ``(B, L, C)``: the cls token, or a map's pixels."""
        if isinstance(output, TokenState):
            return output.tokens[:, :1] if self.view.has_cls else output.tokens
        last = output[-1]
        last = last[0] if isinstance(last, tuple) else last
        return last.flatten(2).transpose(1, 2)

    @cached_property
    def targets(self) -> list[list[Tensor]]:
        """Predictions of the network for the compared images."""
        return [self.predictions.read(x, self.run({}, x)) for x in self.compared]

    @torch.no_grad()
    def divergence(self, run: Run | Layers) -> float:
        """Return the mean divergence from the network's predictions."""
        run = partial(self.run, run) if isinstance(run, Mapping) else run
        pairs = zip(self.compared, self.targets, strict=True)
        found = [
            len(x) * self.predictions.distance(self.predictions.read(x, run(x)), target)
            for x, target in pairs
        ]
        return float(sum(found)) / sum(map(len, self.compared))

    def hidden(self, i: int, state: TokenState) -> Tensor:
        """Return all hidden activations ``(B, L, K)`` of a branch."""
        branch = self.view[i]
        return branch.hidden(state.tokens, state.grid, None, branch.units)

    @cached_property
    def moments(self) -> dict[int, 'Moments']:
        """Moments of the hidden activations of every branch, in the network itself."""
        sums = {i: Moments.sums(self.view[i]) for i in self.branches()}
        with torch.no_grad():
            for state in map(self.view.embed, self.fitted):
                for i in range(self.view.depth):
                    if i in sums:
                        hidden = self.hidden(i, state)
                        sums[i].update(hidden, hidden[..., :1])
                    state = self.view.run_block(state, i)
        return {i: Moments.of(fit) for i, fit in sums.items()}

    def narrow(
        self, i: int, kept: Tensor, fitted: tuple[Tensor, Tensor] | None = None
    ) -> Layer:
        """Return a branch that runs the kept units, with a fitted projection."""
        branch = self.view[i]
        mask = torch.ones(branch.units, dtype=torch.bool)
        mask[kept] = False
        order = UnitOrder(branch.units)
        order.index.copy_(torch.cat([kept, mask.nonzero().flatten()]))
        self._orders.append(order)  # branches know an order by its address
        dim = self.view.block_dims[i]
        layer = NarrowBranch(branch, len(kept), dim, order, i).requires_grad_(False)
        if fitted is not None:
            layer.set_map(*fitted)
        return layer.map_state

    @cached_property
    def states(self) -> list[list[TokenState]]:
        """States of the fitted images before the first and after every block."""
        found = []
        with torch.no_grad():
            for state in map(self.view.embed, self.fitted):
                found.append([state])
                for block in range(self.depth):
                    for i in self.of_block(block):
                        state = self.view.run_block(state, i)
                    found[-1].append(state)
        return found

    def gap(self, first: int, last: int) -> dict[int, Layer]:
        """Return layers in place of blocks ``first`` to ``last``: one affine map.

        There is a map more after each of these blocks whose map the head reads. Maps
        are fitted from the network's states to its states.
        """
        layers, begin = {}, first
        for block in range(first, last + 1):
            layers |= dict.fromkeys(self.of_block(block), skip)
            if block == last or self.view.ends[block] in self.read:
                layers[self.of_block(block)[-1]] = self._map(begin, block + 1)
                begin = block + 1
        return layers

    def _map(self, before: int, after: int) -> Layer:
        width = self.view.block_dims[0]
        fit = LeastSquares(width, width, False, RIDGE, exact=False)
        for states in self.states:
            fit.update(states[before].tokens, states[after].tokens)
        fitted = [x.float() for x in fit.x_to_y()]
        return lambda state: state.mapped(lambda x: F.linear(x, *fitted))


def skip(state: TokenState) -> TokenState:
    """Skip a branch."""
    return state


class Moments(NamedTuple):
    """Number of tokens, mean ``(K,)`` and mean products ``(K, K)`` of activations."""

    number: float
    mean: Tensor
    gram: Tensor

    @staticmethod
    def sums(branch: Branch) -> LeastSquares:
        """Return sums over the hidden activations of a branch."""
        return LeastSquares(branch.units * branch.group, 1, False, exact=False)

    @classmethod
    def of(cls, sums: LeastSquares) -> 'Moments':
        """Return the moments of sums."""
        xx = sums.sums[0]
        number = xx[-1, -1]
        return cls(number.item(), xx[-1, :-1] / number, xx[:-1, :-1] / number)

    @property
    def covariance(self) -> Tensor:
        return self.gram - self.mean.outer(self.mean)


@torch.no_grad()
def projection(branch: Branch) -> tuple[Tensor, Tensor]:
    """Return weight ``(C, K)`` and bias of a branch's output, with its LayerScale."""
    if branch.kind == 'attention':
        layer, scale = getattr(branch.heads_of, branch.proj), 'ls1'
    else:
        layer, scale = branch.neurons_of.get_submodule(branch.layout.fc2), 'ls2'
    scale = getattr(branch.block, scale, nn.Identity())
    units = torch.eye(branch.units * branch.group, device=layer.weight.device)
    bias = scale(layer(torch.zeros_like(units[:1])))
    return (scale(layer(units)) - bias).T, bias[0]


def folded(
    fitted: tuple[Tensor, Tensor],
    kept: Tensor,
    mean: Tensor | None = None,
    gram: Tensor | None = None,
    ridge: float = 0,
) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a projection that reads the kept channels alone.

    The others are replaced by their mean and, with a Gram matrix, by the linear
    prediction from the kept ones that has least squared error plus ridge.
    """
    weight, bias = (part.double() for part in fitted)
    mask = torch.ones(weight.shape[1], dtype=torch.bool)
    mask[kept] = False
    lost = mask.nonzero().flatten()
    left = weight[:, kept]
    mean = torch.zeros(weight.shape[1]) if mean is None else mean
    offset = mean[lost].double()
    if gram is not None and len(lost):
        square = gram[kept][:, kept] + ridge * torch.eye(len(kept)).to(gram)
        maps = torch.linalg.solve(square, gram[kept][:, lost]).T
        left = left + weight[:, lost] @ maps
        offset = offset - maps @ mean[kept].double()
    bias = bias + weight[:, lost] @ offset
    return left.float(), bias.float()


class Attention:
    """Softmax attention of a plain branch, whose queries and keys may have others.

    Attributes:
        weights: Weights ``(heads, width, C)`` of queries, keys and values.
        biases: Their biases ``(heads, width)``.
        scale: Factor of the scores.
    """

    def __init__(self, branch: Branch) -> None:
        attn, heads = branch.heads_of, (3, branch.units, branch.group)
        check(hasattr(attn, 'qkv'), 'model.backbone', type(attn).__name__, 'plain ViTs')
        self.weights = [*attn.qkv.weight.detach().unflatten(0, heads)]
        bias = attn.qkv.bias
        bias = attn.qkv.weight.new_zeros(heads).flatten() if bias is None else bias
        self.biases = [*bias.detach().unflatten(0, heads)]
        self.enter, self.out = branch.enter, projection(branch)
        self.scale = branch.group**-0.5

    def heads(self, tokens: Tensor) -> list[Tensor]:
        """Return queries, keys and values ``(B, heads, L, width)``."""
        x, pairs = self.enter(tokens), zip(self.weights, self.biases, strict=True)
        return [
            F.linear(x, w.flatten(0, 1), b.flatten())
            .unflatten(-1, w.shape[:2])
            .transpose(1, 2)
            for w, b in pairs
        ]

    def attend(self, tokens: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        """Return tokens after the branch, and its keys."""
        q, k, v = self.heads(tokens)
        options = dict(attn_mask=mask, scale=self.scale)
        h = F.scaled_dot_product_attention(q, k, v, **options)
        return tokens + F.linear(h.transpose(1, 2).flatten(2), *self.out), k

    def __call__(self, state: TokenState) -> TokenState:
        return state._replace(tokens=self.attend(state.tokens)[0])
