"""Networks without training beside chains; see ``without_training.py``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.dataset import pseudo_collate
from mmengine.registry import DATASETS
from mmseg.evaluation import IoUMetric
from torch import Tensor, nn

from snnet_mm.anchors import PlainViT, TokenState
from snnet_mm.costs import cost_table
from snnet_mm.elastic import ImageBatches
from snnet_mm.evaluation.image_scores import ImageScores, resampled_images
from snnet_mm.models import LeastSquares, find_stitched_backbone, set_stitch
from snnet_mm.utils import check

SHARES = 0.75, 0.5, 0.33  # of the network's FLOPs
SIZES = (140, 196), (126, 182), (112, 154), (98, 140)
CASCADE = 0.25, 0.5, 0.75  # shares of the images that run the network, too
FITTED, COMPARED, BATCH = 64, 24, 8
# Of Expedit: iterations, reach of a cluster in cells, clusters that make up a token,
# temperature in mean squared distances of tokens and clusters.
ITERATIONS, REACH, NEAREST, HEAT = 5, 2, 20, 0.1
Grid = tuple[int, int]
# A setting, its FLOPs, and a function from images to logits ``(B, classes, h, w)``.
Variant = tuple[str, float, Callable[[Tensor], Tensor]]


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


class Comparison:
    """The network of an elastic model, and all variants of it."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.backbone = model, find_stitched_backbone(model)
        (net,) = self.backbone.anchors
        fits = isinstance(net, PlainViT) and len(self.backbone.out_indices) == 1
        wanted = 'a PlainViT whose last map a head reads'
        check(fits, 'model.backbone', type(net).__name__, wanted)
        self.net, self.width = net, net.block_dims[0]
        self.fitted = [*ImageBatches(model.cfg, model, FITTED)]
        self.compared = [*ImageBatches(model.cfg, model, COMPARED, skip=FITTED)]
        self.targets = [self.stitch(0, x).log_softmax(1) for x in self.compared]
        self.size = tuple(self.fitted[0].shape[-2:])
        tokens, self.grid = net.embed(self.fitted[0][:1])
        self.tokens = tokens.shape[1]
        self.whole = cost_table(model, self.size)[0].flops

    def chains(self) -> Iterator[Variant]:
        table = cost_table(self.model, self.size)
        for i in self.backbone.space.ids:
            yield f'stitch {i}', table[i].flops, partial(self.stitch, i)

    def sizes(self) -> Iterator[Variant]:
        for n, size in enumerate(SIZES):
            table = cost_table(self.model, size)
            for i in (0, 1, 2, 3) if n % 2 else (0,):
                name = f'stitch {i} at {size[0]}x{size[1]}'
                yield name, table[i].flops, partial(self.stitch, i, size=size)

    def one_map(self) -> Iterator[Variant]:
        """One map for the run of blocks that it replaces with least divergence."""
        states = [[self.net.embed(images)] for images in self.fitted]
        for found in states:
            for i in range(self.net.depth):
                found.append(self.net.run_block(found[-1], i))
        block, cost = self.block(self.tokens), self.tokens * self.width**2
        for share in SHARES:
            number = round(((1 - share) * self.whole + cost) / block)
            flops, variants = self.whole - number * block + cost, []
            for begin in range(self.net.depth - number + 1):
                fit = LeastSquares(self.width, self.width, False, 1e-4, exact=False)
                for found in states:
                    fit.update(found[begin].tokens, found[begin + number].tokens)
                fitted = (part.float() for part in fit.x_to_y())
                run = range(begin, begin + number)
                name = f'blocks {begin} to {begin + number - 1}'
                variants.append((name, flops, partial(self.mapped, run, *fitted)))
            yield min(variants, key=self.divergence)

    def tome(self) -> Iterator[Variant]:
        """As many tokens merge in each of the first blocks, or in all."""
        depth = self.net.depth
        for share in SHARES:
            variants = []
            for last in (1, 2, 3, 4, 6, depth):
                for wish in range(1, self.tokens // 2):
                    lengths = [self.tokens]
                    for i in range(depth):
                        gone = min(wish * (i < last), (lengths[-1] - 1) // 2)
                        lengths.append(lengths[-1] - gone)
                    flops = self.flops(zip(lengths, lengths[1:], strict=False))
                    if flops <= share * self.whole:
                        numbers = (-np.diff(lengths)).tolist()
                        name = f'{wish} in each of {last} blocks'
                        logits = partial(self.merged, numbers)
                        variants.append((name, flops, logits))
                        break
            yield min(variants, key=self.divergence)

    def expedit(self) -> Iterator[Variant]:
        """After the block of least divergence from the network's predictions."""
        depth, (rows, columns) = self.net.depth, self.grid
        for share in SHARES:
            variants = []
            for first in range(1, depth // 2):
                grids = [(h, round(h * columns / rows)) for h in range(2, rows)]
                lengths = [h * w + self.net.num_prefix for h, w in grids]
                flops = [self.flops([(n, n)] * (depth - first)) for n in lengths]
                if best := sum(f <= share * self.whole for f in flops):
                    grid = grids[best - 1]
                    name = f'{grid[0]}x{grid[1]} after {first} blocks'
                    logits = partial(self.clustered, first, grid)
                    variants.append((name, flops[best - 1], logits))
            yield min(variants, key=self.divergence)

    def block(self, tokens: int, after: int | None = None) -> int:
        """Return the FLOPs of a block, whose MLP may have another number of tokens."""
        attention = 4 * tokens * self.width**2 + 2 * tokens**2 * self.width
        hidden = self.net.blocks[0].mlp.fc1.out_features
        return attention + 2 * (after or tokens) * self.width * hidden

    def flops(self, lengths: Iterable[tuple[int, int]]) -> int:
        """Return the FLOPs if the last blocks have fewer tokens."""
        full = self.block(self.tokens)
        return self.whole - sum(full - self.block(*pair) for pair in lengths)

    def divergence(self, variant: Variant) -> float:
        """Return the divergence from the network's predictions."""
        total = 0.0
        for images, target in zip(self.compared, self.targets, strict=True):
            gaps = target - variant[2](images).log_softmax(1)
            total += (target.exp() * gaps).sum(1).mean().item()
        return total

    def stitch(self, i: int, images: Tensor, size: Grid | None = None) -> Tensor:
        if size is not None:
            images = F.interpolate(images, size, mode='bilinear', antialias=True)
        set_stitch(self.model, i)
        return self.model.decode_head(self.model.extract_feat(images))

    def run(self, x: Tensor, blocks: Iterable[int]) -> Tensor:
        for i in blocks:
            x = self.net.blocks[i](x, self.grid)
        return x

    def head(self, x: Tensor) -> Tensor:
        state = self.net.finish(TokenState(x, self.grid))
        return self.model.decode_head((self.net.to_feature_map(state),))

    def mapped(
        self, skipped: range, weight: Tensor, bias: Tensor, images: Tensor
    ) -> Tensor:
        x = self.run(self.net.embed(images).tokens, range(skipped.start))
        x = F.linear(x, weight, bias)
        return self.head(self.run(x, range(skipped.stop, self.net.depth)))

    def merged(self, numbers: Sequence[int], images: Tensor) -> Tensor:
        x = self.net.embed(images).tokens
        sizes = x.new_ones(*x.shape[:2], 1)
        owner = torch.arange(x.shape[1]).expand(x.shape[:2])
        for block, number in zip(self.net.blocks, numbers, strict=True):
            attn = block.attn
            qkv = attn.qkv(block.norm1(x)).unflatten(-1, (3, attn.num_heads, -1))
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            mask = sizes.log().transpose(1, 2)[:, None]
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + block.ls1(attn.proj(y.transpose(1, 2).flatten(2)))
            place = matched(k.mean(1), number)
            x, sizes = merge(x, sizes, place)
            x, owner = block.feed(x), place.gather(1, owner)
        return self.head(x.gather(1, owner[..., None].expand(-1, -1, x.shape[-1])))

    def clustered(self, first: int, grid: Grid, images: Tensor) -> Tensor:
        x = self.run(self.net.embed(images).tokens, range(first))
        prefix, patches = x.split(
            [self.net.num_prefix, x.shape[1] - self.net.num_prefix], 1
        )
        centres, weights = cluster(patches, self.grid, grid)
        x = self.run(torch.cat([prefix, centres], dim=1), range(first, self.net.depth))
        patches = weights @ x[:, self.net.num_prefix :]
        return self.head(torch.cat([x[:, : self.net.num_prefix], patches], dim=1))


def tested(net: Comparison, variants: Sequence[Variant], every: int) -> dict:
    """Test variants on every n-th test image.

    Returns intersections and unions ``(variants, images, 2, classes)``, mean entropies
    of the pixels ``(variants, images)``, FLOPs and settings.
    """
    model = net.model
    with DATASETS.switch_scope_and_registry(model.cfg.get('default_scope')):
        dataset = DATASETS.build(model.cfg.test_dataloader.dataset)
    counts, entropies = ([[] for _ in variants] for _ in range(2))
    chosen = range(0, len(dataset), every)
    for first in range(0, len(chosen), BATCH):
        items = [dataset[i] for i in chosen[first : first + BATCH]]
        images = model.data_preprocessor(pseudo_collate(items), False)['inputs']
        truth = torch.cat([item['data_samples'].gt_sem_seg.data for item in items])
        for i, (_, _, predict) in enumerate(variants):
            logits = predict(images)
            spread = torch.distributions.Categorical(logits=logits.movedim(1, -1))
            entropies[i] += spread.entropy().mean((1, 2)).tolist()
            # As in mmseg, by way of the size of the network's images.
            for size in (predict.keywords.get('size', net.size), truth.shape[1:]):
                logits = F.interpolate(logits, size, mode='bilinear')
            for pair in zip(logits.argmax(1), truth, strict=True):
                areas = IoUMetric.intersect_and_union(*pair, logits.shape[1], 255)
                counts[i].append(torch.stack(areas[:2]))
    settings, flops, _ = zip(*variants, strict=True)
    counts = torch.stack([torch.stack(of) for of in counts]).numpy()
    names = 'counts', 'entropies', 'flops', 'settings'
    found = counts, np.array(entropies), np.array(flops), settings
    return dict(zip(names, found, strict=True))


def cascade(chains: dict) -> dict:
    """Return cascades of every chain and the network, like the results of a method."""
    flops, settings, counts = [], [], []
    for i in range(1, len(chains['flops'])):
        place = (-chains['entropies'][i]).argsort().argsort()
        for share in CASCADE:
            second = place < round(share * len(place))
            counts.append(np.where(second[:, None, None], *chains['counts'][[0, i]]))
            flops.append(chains['flops'][i] + second.mean() * chains['flops'][0])
            settings.append(f'stitch {i}, the network for {share:.0%}')
    return dict(flops=flops, settings=settings, counts=np.array(counts))


def table(results: dict[str, dict]) -> list[dict]:
    """Return one row for every variant of all methods.

    ``against_chains`` is its mIoU less that of the line through the network and its
    chains at the same FLOPs, with a 95 % interval of a bootstrap over the images.
    """
    chains = results['chains']
    number = chains['counts'].shape[1]
    weights = resampled_images(number, 1000, np.random.default_rng(0))

    def scores(found: dict) -> np.ndarray:
        above, below = np.moveaxis(found['counts'].astype(float), 2, 0)
        return ImageScores('mIoU', (), above, below, 100).scores(weights)

    costs, line, rows = chains['flops'][::-1], scores(chains)[:, ::-1], []
    for method, found in (results | dict(cascade=cascade(chains))).items():
        numbers = zip(found['settings'], found['flops'], scores(found).T, strict=True)
        for setting, flops, values in numbers:
            row = dict(gflops=flops / 1e9, of_flops=flops / costs[-1])
            row |= dict(miou=values[0], of_miou=values[0] / line[0, -1])
            if flops >= costs[0] and method != 'chains':
                gaps = values - [np.interp(flops, costs, one) for one in line]
                low, high = np.percentile(gaps[1:], [2.5, 97.5])
                row |= dict(against_chains=gaps[0], low=low, high=high)
            row = {key: round(float(value), 3) for key, value in row.items()}
            rows.append(dict(method=method, setting=str(setting), **row))
    return rows
