"""Methods of ``untrained.py``: a trained network at smaller budgets, without training.

A method is a function of a :class:`Network` that yields a :class:`Variant` for each
budget that it can meet. Each is written from its paper and public code for networks of
plain transformer blocks. Differences are in docs/explanation/untrained.md.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.transforms.v2 import RandomResizedCrop
from untrained_network import (
    Attention,
    Layer,
    Layers,
    Moments,
    Network,
    Variant,
    folded,
    projection,
    skip,
)

from snnet_mm.anchors import Branch, TokenState
from snnet_mm.costs import cost_table
from snnet_mm.elastic import elastic_model
from snnet_mm.elastic.orders import channels_of
from snnet_mm.utils import isolated_rng

STEPS = 200  # in which a continuous setting is searched

# CORP (BOX-LEO/CORP): all MLPs and all queries and keys by one share, layer by layer.
# Least numbers of neurons and of channels of queries and keys that its code keeps.
MIN_NEURONS, MIN_KEYS = 64, 8
CORP_RIDGE = 1e-3


def corp(net: Network) -> Iterator[Variant]:
    for share in net.shares:
        kept = net.most(share, STEPS, lambda n: corp_layers(net, n / STEPS, fit=False))
        if kept >= 0:
            layers = corp_layers(net, kept / STEPS)
            yield net.variant('CORP', share, f'{kept / STEPS:.1%} kept', layers)


@torch.no_grad()
def corp_layers(net: Network, kept: float, fit: bool = True) -> dict[int, Layer]:
    """Return the layers of a uniform share, fitted one after the other.

    Within a block, activations of the MLP are those after the whole attention.
    """
    states = [net.view.embed(images) for images in net.fitted] if fit else []
    whole, layers = states, {}
    for i, step in enumerate(net.view.steps):
        if step.kind == 'attention':
            layers[i] = corp_attention(step.branch, states, kept)
            whole = [net.view.run_block(state, i) for state in states]
        elif step.kind == 'mlp':
            layers[i] = corp_mlp(net, i, whole, kept)
        states = [net.step(layers, state, i) for state in states]
    return layers


def corp_mlp(net: Network, i: int, states: Sequence[TokenState], kept: float) -> Layer:
    """Keep the most active neurons; ridge regression predicts the others from them."""
    units = net.view[i].units
    number = max(units - int(units * (1 - kept) + 1e-9), min(MIN_NEURONS, units))
    if not states:
        return net.narrow(i, torch.arange(number))
    sums, active = Moments.sums(net.view[i]), 0
    for state in states:
        hidden = net.hidden(i, state)
        sums.update(hidden, hidden[..., :1])
        threshold = 0.01 * hidden.square().mean().sqrt()
        active = active + (hidden.abs() > threshold).sum((0, 1))
    found = Moments.of(sums)
    energy = found.gram.diagonal() * active / found.number
    chosen = energy.argsort(descending=True)[:number].sort().values
    cov = found.covariance
    ridge = max(CORP_RIDGE, shrinkage(cov[chosen][:, chosen], found.number))
    fitted = folded(projection(net.view[i]), chosen, found.mean, cov, ridge)
    return net.narrow(i, chosen, fitted)


def shrinkage(cov: Tensor, number: float) -> float:
    """Return the ridge of oracle approximating shrinkage of a covariance matrix."""
    width, trace, square = len(cov), cov.trace(), cov.square().sum()
    above = (1 - 2 / width) * square + trace**2
    below = (number + 1 - 2 / width) * (square - trace**2 / width)
    rho = 1.0 if below <= 0 else min(1.0, (above / below).item())
    return rho * trace.item() / width


def corp_attention(
    branch: Branch, states: Sequence[TokenState], kept: float
) -> Attention:
    """Keep channels of queries and keys of most energy, and compensate the scores.

    For each head, ``Q_S (I + M) K_S'`` approximates ``Q K'`` over all pairs of tokens.
    Scores keep their scale, an option of its code that has less divergence here.
    """
    found, width = Attention(branch), branch.group
    number = max(width - int(width * (1 - kept) + 1e-9), min(MIN_KEYS, width))
    keys = slice(2)
    if not states:
        found.weights[keys] = [w[:, :number] for w in found.weights[keys]]
        found.biases[keys] = [b[:, :number] for b in found.biases[keys]]
        return found
    if number == width:
        return found
    energy, grams, total, tokens = 0, [0, 0], 0, 0
    for state in states:
        q, k, _ = (x.double() for x in found.heads(state.tokens))
        energy = energy + (q * k).square().sum((0, 2))
        grams = [
            g + torch.einsum('bhlc,bhld->hcd', x, x)
            for g, x in zip(grams, (q, k), strict=True)
        ]
        total = total + q.sum((0, 2))
        tokens += q.shape[0] * q.shape[2]
    order = energy.argsort(dim=1, descending=True)
    for name in ('weights', 'biases'):
        new = ([], [])
        for h in range(branch.units):
            chosen = order[h, :number].sort().values
            pair = score_factors(chosen, *(g[h] for g in grams), total[h], tokens)
            for part, factor, made in zip(
                getattr(found, name)[keys], pair, new, strict=True
            ):
                made.append(factor.T.float() @ part[h][chosen])
        getattr(found, name)[keys] = [torch.stack(made) for made in new]
    return found


def score_factors(
    kept: Tensor, queries: Tensor, keys: Tensor, total: Tensor, number: int
) -> tuple[Tensor, Tensor]:
    """Return factors of kept queries and of kept keys that compensate their scores.

    ``queries`` and ``keys`` are Gram matrices of a head, and ``total`` is the sum of
    its queries. The change ``M`` of least error solves ``G_Q M G_K + ridge M = C``.
    """
    mask = torch.ones(len(queries), dtype=torch.bool)
    mask[kept] = False
    lost = mask.nonzero().flatten()
    cross = queries[kept][:, lost] @ keys[lost][:, kept]
    mean = total[kept] / number
    own = queries[kept][:, kept]
    ridge = max(CORP_RIDGE, shrinkage(own / number - mean.outer(mean), number))
    a, left = torch.linalg.eigh(own)
    b, right = torch.linalg.eigh(keys[kept][:, kept])
    change = left.T @ cross @ right / (a[:, None] * b + ridge)
    change = torch.eye(len(kept)).to(cross) + left @ change @ right.T
    u, s, v = torch.linalg.svd((change + change.T) / 2)  # as its code does
    root = s.clamp(min=1e-6).sqrt()
    return u * root, v.T * root


# SnapViT (WalterSimoncini/SnapViT): one ranking of all neurons and one of all heads.
# Crops of an image, and shares of it that a global and a local crop show; its code
# takes 2 and 10.
GLOBAL_CROPS, LOCAL_CROPS = 2, 4
GLOBAL_SCALE, LOCAL_SCALE = (0.25, 1.0), (0.05, 0.25)
# Least shares of neurons and heads of a block, evaluations of xNES, factors of the
# first and the last block to start from, shares of neurons and heads that are pruned
# in the search, and the number of components of features.
MIN_KEPT = dict(mlp=0.05, attention=0.2)
EVALUATIONS, START, COMPONENTS = 50, (1.2, 0.8), 192
SEARCHED = (0.15, 0.0), (0.35, 0.2), (0.55, 0.4), (0.65, 0.5)
HEADS_LESS = 0.15  # by how much less heads are pruned than neurons
DAMPING = 0.01  # of the mean of the Hessian's diagonal


def snapvit(net: Network) -> Iterator[Variant]:
    scores = gradient_scores(net)
    factors = block_factors(net, scores)
    scores = {i: s * factors[i] for i, s in scores.items()}

    def kept(number: int) -> dict[int, Tensor]:
        lost = 1 - number / STEPS
        return best_units(net, scores, lost, max(0.0, lost - HEADS_LESS))

    for share in net.shares:
        number = net.most(share, STEPS, lambda n: cut(net, kept(n)))
        if number >= 0:
            name, units = f'{1 - number / STEPS:.1%} of neurons pruned', kept(number)
            yield net.variant('SnapViT', share, name, cut(net, units))
            layers = cut(net, units, corrected=True)
            yield net.variant('SnapViT, corrected', share, name, layers)


def input_weight(branch: Branch) -> tuple[nn.Parameter, int]:
    """Return the weight of neurons, or of queries, keys and values, and its parts."""
    name = next(name for name in branch.cuts if name.endswith('weight'))
    return branch.block.get_parameter(name), branch.cuts[name]


@torch.enable_grad()
def gradient_scores(net: Network) -> dict[int, Tensor]:
    """Return the score of every unit: mean squared gradient of its input weights.

    The loss is DINO's between crops of an image, without labels: cross-entropy between
    softmaxes of the pooled, normalised features. Of heads, values are read.
    """
    weights = {i: input_weight(net.view[i]) for i in net.branches()}
    for weight, _ in weights.values():
        weight.requires_grad_(True)
    number = sum(map(len, net.fitted))
    crops = (GLOBAL_CROPS, GLOBAL_SCALE), (LOCAL_CROPS, LOCAL_SCALE)
    with isolated_rng(0):
        for image in (image for batch in net.fitted for image in batch):
            size = image.shape[-2:]
            views = [
                RandomResizedCrop(size, scale, antialias=True)(image)
                for many, scale in crops
                for _ in range(many)
            ]
            pooled = net.features(net.run({}, torch.stack(views))).mean(1)
            logits = F.normalize(pooled, dim=-1)
            targets = logits[:GLOBAL_CROPS].detach().softmax(-1)
            each = -targets @ logits.log_softmax(-1).T
            loss = each.sum() - each.diagonal().sum()  # without pairs of a crop
            (loss / number).backward()
    scores = {}
    for i, (weight, parts) in weights.items():
        values = weight.grad.unflatten(0, (parts, net.view[i].units, -1))[-1]
        scores[i] = values.square().flatten(1).mean(1)
        weight.grad = None
    net.model.requires_grad_(False)
    return scores


def best_units(
    net: Network, scores: Mapping[int, Tensor], neurons: float, heads: float
) -> dict[int, Tensor]:
    """Return the units that are left if a share of neurons and of heads is pruned.

    Those of all branches of a kind are ranked together; some of each branch stay.
    """
    kept = {}
    for kind, share in (('mlp', neurons), ('attention', heads)):
        steps = net.branches(kind)
        values = torch.stack([scores[i] for i in steps]).clone()
        units = values.shape[1]
        safe = values.topk(max(1, int(units * MIN_KEPT[kind])), dim=1).indices
        values.scatter_(1, safe, torch.inf)
        lost = values.flatten().argsort()[: int(values.numel() * share)]
        left = torch.ones(values.numel(), dtype=torch.bool)
        left[lost] = False
        left |= values.flatten().isinf()
        rows = left.view_as(values)
        kept |= {i: row.nonzero().flatten() for i, row in zip(steps, rows, strict=True)}
    return kept


def cut(
    net: Network, kept: Mapping[int, Tensor], corrected: bool = False
) -> dict[int, Layer]:
    """Return branches that run the kept units, with their own projection.

    The correction is that of SparseGPT: least squares, in the network itself, of the
    projection of the kept channels towards that of all.
    """
    layers = {}
    for i, units in kept.items():
        branch = net.view[i]
        if len(units) < branch.units:
            channels, more = channels_of(units, branch.group), {}
            if corrected:
                gram = net.moments[i].gram
                more = dict(gram=gram, ridge=DAMPING * gram.diagonal().mean().item())
            fitted = folded(projection(branch), channels, **more)
            layers[i] = net.narrow(i, units, fitted)
    return layers


def block_factors(net: Network, scores: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """Return factors of scores: one for each MLP, and one for each head.

    They are searched by xNES for least mean cosine distance of the network's features
    from those of four pruned networks, in components of the former.
    """
    mlps, attentions = net.branches('mlp'), net.branches('attention')
    heads = net.view[attentions[0]].units
    start = np.linspace(*START, len(mlps))
    start = np.concatenate([start, start.repeat(heads)])

    def factors(point: np.ndarray) -> dict[int, Tensor]:
        values = torch.from_numpy(np.abs(point)).float()
        of_heads = values[len(mlps) :].view(-1, heads)
        pairs = (mlps, values), (attentions, of_heads)
        return {i: v for steps, vs in pairs for i, v in zip(steps, vs, strict=False)}

    @torch.no_grad()
    def features(layers: Layers) -> Tensor:
        return torch.cat(
            [net.features(net.run(layers, x)).flatten(0, 1) for x in net.compared]
        )

    target = features({})
    mean = target.mean(0)
    number = min(COMPONENTS, *target.shape)
    components = torch.linalg.svd(target - mean, full_matrices=False)[2][:number].T
    target = (target - mean) @ components

    def distance(point: np.ndarray) -> float:
        own, total = factors(point), 0.0
        ranked = {i: s * own[i] for i, s in scores.items()}
        for shares in SEARCHED:
            found = features(cut(net, best_units(net, ranked, *shares)))
            cosine = F.cosine_similarity((found - mean) @ components, target, dim=-1)
            total += 1 - cosine.mean().item()
        return total / len(SEARCHED)

    return factors(xnes(distance, start, EVALUATIONS))


def xnes(
    loss: Callable[[np.ndarray], float], mean: np.ndarray, evaluations: int
) -> np.ndarray:
    """Minimise by exponential natural evolution strategies; return the best point."""
    rng, size = np.random.default_rng(0), len(mean)
    many = 4 + int(3 * np.log(size))
    worth = np.maximum(0, np.log(many / 2 + 1) - np.log(np.arange(1, many + 1)))
    worth = worth / worth.sum() - 1 / many
    rate = (9 + 3 * np.log(size)) / (5 * size * np.sqrt(size))
    root, best = np.eye(size), (np.inf, mean)
    while evaluations > 0:
        steps = rng.standard_normal((many, size))[:evaluations]
        evaluations -= len(steps)
        points = mean + steps @ root.T
        losses = [loss(point) for point in points]
        first = int(np.argmin(losses))
        best = min(best, (losses[first], points[first]), key=lambda pair: pair[0])
        if len(steps) == many:
            steps = steps[np.argsort(losses)]
            mean = mean + root @ (worth @ steps)
            change = torch.from_numpy(rate / 2 * (steps.T * worth) @ steps)
            root = root @ torch.matrix_exp(change).numpy()
    return best[1]


def vbp(net: Network) -> Iterator[Variant]:
    """VBP: neurons of least variance of all MLPs; their mean becomes a bias."""
    steps = net.branches('mlp')
    found = [net.moments[i] for i in steps]
    variances = torch.stack([m.covariance.diagonal() for m in found])
    # The best neuron of each MLP stays.
    variances.scatter_(1, variances.argmax(1, keepdim=True), torch.inf)
    order = variances.flatten().argsort(descending=True)

    def layers(number: int, fit: bool = True) -> dict[int, Layer]:
        left = torch.zeros(variances.numel(), dtype=torch.bool)
        left[order[: max(number * len(order) // STEPS, len(steps))]] = True
        kept = (row.nonzero().flatten() for row in left.view_as(variances))
        made = {}
        for i, m, units in zip(steps, found, kept, strict=True):
            fitted = folded(projection(net.view[i]), units, m.mean) if fit else None
            made[i] = net.narrow(i, units, fitted)
        return made

    for share in net.shares:
        number = net.most(share, STEPS, partial(layers, fit=False))
        if number >= 0:
            name = f'{number / STEPS:.1%} of neurons kept'
            yield net.variant('VBP', share, name, layers(number))


def one_map(net: Network) -> Iterator[Variant]:
    """ReplaceMe and TOAST: an affine map in place of one run of blocks.

    Of all runs of the length that meets a budget, that of least divergence.
    """
    for share in net.shares:
        most = net.most(share, net.depth - 1, lambda n: net.gap(0, net.depth - n - 1))
        if most >= 0:
            length = net.depth - most
            spans = [(first, first + length - 1) for first in range(most + 1)]
            runs = {f'blocks {a} to {b}': net.gap(a, b) for a, b in spans}
            yield net.best('one affine map', share, runs)


GREEDY_IMAGES = 8  # of which DART reads 16


@torch.no_grad()
def skipped_branches(net: Network) -> list[int]:
    """Order branches as DART skips them: that of least error of the features first."""
    images = torch.cat(net.compared)[:GREEDY_IMAGES]
    target, layers = net.run({}, images), {}
    left, order = net.branches(), []

    def error(output: object) -> float:
        pairs = zip(_tensors(output), _tensors(target), strict=True)
        return sum((a - b).square().mean().item() for a, b in pairs)

    while left:
        state, read, errors = net.view.embed(images), {}, {}
        for i in range(net.view.depth):
            if i in left:
                start = dict(begin=i, state=state, read=read)
                errors[i] = error(net.run(layers | {i: skip}, images, **start))
            state = net.step(layers, state, i)
            read |= {i: state} if i in net.read else {}
        order.append(min(errors, key=errors.get))
        left.remove(order[-1])
        layers[order[-1]] = skip
    return order


def _tensors(output: object) -> list[Tensor]:
    if isinstance(output, TokenState):
        return [output.tokens]
    return [x for part in output for x in (part if isinstance(part, tuple) else [part])]


def identity(net: Network) -> Iterator[Variant]:
    """DART's way: branches are skipped, and nothing takes their place."""
    order = skipped_branches(net)

    def layers(number: int) -> Layers:
        return dict.fromkeys(order[: len(order) - number], skip)

    for share in net.shares:
        number = net.most(share, len(order), layers)
        if number >= 0:
            name = f'{number} of {len(order)} branches'
            yield net.variant('branches skipped', share, name, layers(number))


def matched(keys: Tensor, number: int) -> Tensor:
    """Return the places ``(B, L)`` of tokens of which a number have merged (ToMe).

    Of those at even places, the ones most similar to one at an odd place, by keys ``(B,
    L, C)``, join it. The first one, the cls token, stays.
    """
    keys = F.normalize(keys, dim=-1)
    similarity = keys[:, ::2] @ keys[:, 1::2].transpose(1, 2)
    similarity[:, 0] = -torch.inf
    best, partner = similarity.max(-1)
    stay = best.argsort(descending=True)[:, number:].sort()[0]
    number = stay.shape[1]
    place = torch.empty(keys.shape[:2], dtype=torch.long)
    place[:, 1::2] = number + torch.arange(keys.shape[1] // 2)
    place[:, ::2] = (number + partner).scatter(
        1, stay, torch.arange(number).expand_as(stay)
    )
    return place


def merge(x: Tensor, sizes: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """Return the means of tokens ``(B, L, C)`` that share a place, and their sizes.

    The size ``(B, L, 1)`` of a token is the number of patches for which it stands.
    """
    total = torch.cat([x * sizes, sizes], dim=-1)
    sums = total.new_zeros(len(x), int(place.max()) + 1, total.shape[-1])
    sums.scatter_add_(1, place[..., None].expand_as(total), total)
    return sums[..., :-1] / sums[..., -1:], sums[..., -1:]


class Merged:
    """ToMe: a number of tokens merges in each of the first blocks.

    Maps get copies of merged tokens in place of their patches.
    """

    def __init__(self, net: Network, blocks: int, number: int) -> None:
        self.net, self.number = net, number
        first = net.branches('attention')[:blocks]
        self.attentions = {i: Attention(net.view[i]) for i in first}

    @torch.no_grad()
    def __call__(self, images: Tensor) -> object:
        net, read = self.net, {}
        state = whole = net.view.embed(images)
        sizes = state.tokens.new_ones(*state.tokens.shape[:2], 1)
        owner = torch.arange(sizes.shape[1]).expand(sizes.shape[:2])
        for i in range(net.view.depth):
            if net.view.steps[i].kind == 'attention':
                tokens, mask = state.tokens, sizes.log().transpose(1, 2)[:, None]
                known = self.attentions.get(i) or Attention(net.view[i])
                tokens, keys = known.attend(tokens, mask)
                if i in self.attentions:
                    number = min(self.number, (tokens.shape[1] - 1) // 2)
                    place = matched(keys.mean(1), number)
                    tokens, sizes = merge(tokens, sizes, place)
                    owner = place.gather(1, owner)
                state = state._replace(tokens=tokens)
            else:
                state = net.view.run_block(state, i)
            if i in net.read or i + 1 == net.view.depth:
                index = owner[..., None].expand(-1, -1, state.tokens.shape[-1])
                whole = state._replace(tokens=state.tokens.gather(1, index))
                read |= {i: whole} if i in net.read else {}
        return net.output(whole, read)


def tome(net: Network) -> Iterator[Variant]:
    """ToMe with as many merged tokens as a budget needs, of least divergence."""
    tokens = net.view.embed(net.fitted[0][:1]).tokens.shape[1]
    most = tokens // 2
    for share in net.shares:
        runs = {}
        for blocks in sorted({1, 2, 3, 4, 6, net.depth} & {*range(net.depth + 1)}):
            number = net.most(share, most, lambda n, b=blocks: Merged(net, b, most - n))
            if number >= 0:
                name = f'{most - number} in each of {blocks} blocks'
                runs[name] = Merged(net, blocks, most - number)
        if runs:
            yield net.best('ToMe', share, runs)


# Of Expedit: iterations, reach of a cluster in cells, clusters that make up a token,
# temperature in mean squared distances of tokens and clusters.
ITERATIONS, REACH, NEAREST, HEAT = 5, 2, 20, 0.1
Grid = tuple[int, int]


def cluster(x: Tensor, shape: Grid, grid: Grid) -> tuple[Tensor, Tensor]:
    """Return a grid of clusters ``(B, n, C)`` of a map of tokens ``(B, L, C)``.

    Also return weights ``(B, L, n)`` by which Expedit reconstructs tokens from them.
    """
    image = x.transpose(1, 2).unflatten(2, shape)
    centres = F.adaptive_avg_pool2d(image, grid).flatten(2).transpose(1, 2)
    both = [zip(lengths, grid, strict=True) for lengths in (shape, grid)]
    own, cells = (
        torch.cartesian_prod(*(torch.arange(n) * m // n for n, m in pairs))
        for pairs in both
    )
    far = (own[:, None] - cells).abs().amax(-1) > REACH
    for _ in range(ITERATIONS):
        distances = torch.cdist(x, centres).square()
        unit = HEAT * distances.mean((1, 2), keepdim=True)
        shares = (-distances / unit).masked_fill(far, -torch.inf).softmax(-1)
        centres = shares.transpose(1, 2) @ x / shares.sum(1)[..., None].clamp(min=1e-16)
    distances = torch.cdist(x, centres).square()
    last = distances.kthvalue(min(NEAREST, distances.shape[-1]), -1, True)[0]
    unit = HEAT * distances.mean((1, 2), keepdim=True)
    far = distances > last
    return centres, (-distances / unit).masked_fill(far, -torch.inf).softmax(-1)


class Clustered:
    """Expedit: tokens are clustered after some blocks, and reconstructed for maps."""

    def __init__(self, net: Network, blocks: int, grid: Grid) -> None:
        self.net, self.grid = net, grid
        self.after = net.of_block(blocks - 1)[-1]

    @torch.no_grad()
    def __call__(self, images: Tensor) -> object:
        net, read = self.net, {}
        state = whole = net.view.embed(images)
        shape, weights = state.grid, None
        for i in range(net.view.depth):
            state = whole = net.view.run_block(state, i)
            if weights is not None:
                patches = weights @ state.patches
                tokens = torch.cat([state.prefix, patches], dim=1)
                whole = TokenState(tokens, shape)
            read |= {i: whole} if i in net.read else {}
            if i == self.after:
                centres, weights = cluster(state.patches, shape, self.grid)
                tokens = torch.cat([state.prefix, centres], dim=1)
                state = TokenState(tokens, self.grid)
        return net.output(whole, read)


def expedit(net: Network) -> Iterator[Variant]:
    """Expedit with as many clusters as a budget allows, of least divergence."""
    rows, columns = net.view.embed(net.fitted[0][:1]).grid
    grids = [(h, max(1, round(h * columns / rows))) for h in range(1, rows)]
    for share in net.shares:
        runs = {}
        for blocks in range(1, net.depth // 2):
            build = lambda n, b=blocks: Clustered(net, b, grids[n])  # noqa: E731
            number = net.most(share, len(grids) - 1, build)
            if number >= 0:
                height, width = grids[number]
                runs[f'{height}x{width} after {blocks} blocks'] = build(number)
        if runs:
            yield net.best('Expedit', share, runs)


def size_plans(net: Network) -> dict[float, str]:
    """Return the plan of the whole network on smaller images for each budget."""
    rows, _ = net.view.embed(net.fitted[0][:1]).grid
    plans = [f'{h / rows:.4f}x' for h in range(1, rows)]
    table, found = cost_table(elastic_model(net.network, plans), net.size), {}
    costs = [table[n].flops for n in range(1, rows)]
    for share in net.shares:
        if number := bisect_right(costs, net.limit(share)):
            found[share] = plans[number - 1]
    return found


def block_plans(net: Network) -> dict[float, str]:
    """Return the plan of whole blocks for each budget that can be met.

    Blocks are skipped in the order of the divergence if an affine map replaces one.
    """
    harms = {b: net.divergence(net.gap(b, b)) for b in range(net.depth)}
    order, found = sorted(harms, key=harms.get), {}
    for share in net.shares:
        for number in range(1, net.depth + 1):
            blocks, layers = sorted(order[:number]), {}
            for first, last in runs_of(blocks):
                layers |= net.gap(first, last)
            if net.cost(layers) <= net.limit(share):
                none = {b: '/'.join('0' * len(net.of_block(b))) for b in blocks}
                found[share] = ' '.join(f'{b}:{text}' for b, text in none.items())
                break
    return found


def runs_of(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last of each run of consecutive sorted numbers."""
    firsts = [n for n in numbers if n - 1 not in numbers]
    lasts = [n for n in numbers if n + 1 not in numbers]
    return [*zip(firsts, lasts, strict=True)]


METHODS: dict[str, Callable[[Network], Iterable[Variant]]] = dict(
    corp=corp,
    snapvit=snapvit,
    vbp=vbp,
    one_map=one_map,
    identity=identity,
    expedit=expedit,
    tome=tome,
)
