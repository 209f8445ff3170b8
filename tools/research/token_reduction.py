"""Fewer tokens instead of narrow branches: two published methods, for comparison.

ToMe (Bolya et al., 2023) merges the ``r`` most similar tokens in every block, and
Expedit (Liang et al., 2022) runs all blocks after one on clusters of tokens. Neither
trains anything; both restore all tokens for a dense head.

``tools/research/token_reduction.py CONFIG CKPT --tome 4 8 --cluster 2:8x12``
"""

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from snnet_mm.utils import ToolParser, load_config, run_command

ITERATIONS, TEMPERATURE, NEAREST = 5, 50.0, 20  # of Expedit


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config of a model with a PlainViT')
    parser.add_argument('checkpoint', help='its checkpoint')
    what = 'tokens that ToMe merges in every block'
    parser.add_argument('--tome', type=int, nargs='*', default=[], help=what)
    what = 'block after which tokens are clustered, and the grid of clusters: 2:8x12'
    parser.add_argument('--cluster', nargs='*', default=[], help=what)
    parser.add_argument('--out', type=Path, required=True, help='JSON file to write')
    parser.add_cfg_options()
    return parser.parse_args()


def merged(x: Tensor, size: Tensor, keys: Tensor, source: Tensor, r: int, first: int):
    """Merge the r most similar pairs of tokens; returns tokens, sizes, sources.

    ``source`` ``(B, L0)`` has the token that stands for each original one. Prefix
    tokens, the ``first`` ones, are never merged.
    """
    keys = F.normalize(keys, dim=-1)
    count = x.shape[1] - first
    even = torch.arange(first, x.shape[1], 2)
    odd = torch.arange(first + 1, x.shape[1], 2)
    r = min(r, len(even), count // 2)
    best, partner = (keys[:, even] @ keys[:, odd].transpose(1, 2)).max(-1)
    ranked = best.argsort(dim=-1, descending=True)
    gone, stay = ranked[:, :r], ranked[:, r:].sort(dim=-1).values
    batch = torch.arange(len(x))[:, None]
    into = partner[batch, gone]
    weighted = x * size
    target, target_size = weighted[:, odd].clone(), size[:, odd].clone()
    wide = into[..., None]
    target.scatter_add_(
        1, wide.expand(-1, -1, x.shape[-1]), weighted[batch, even[gone]]
    )
    target_size.scatter_add_(1, wide, size[batch, even[gone]])
    tokens = torch.cat(
        [x[:, :first], x[batch, even[stay]], target / target_size], dim=1
    )
    sizes = torch.cat([size[:, :first], size[batch, even[stay]], target_size], dim=1)
    place = torch.zeros(x.shape[:2], dtype=torch.long)
    place[:, :first] = torch.arange(first)
    offset = first + stay.shape[1]
    place[batch, even[stay]] = first + torch.arange(stay.shape[1])
    place[:, odd] = offset + torch.arange(len(odd))
    place[batch, even[gone]] = offset + into
    return tokens, sizes, place.gather(1, source)


def run_tome(net, images: Tensor, r: int, flops: list[int]):
    """Run a PlainViT with ToMe; appends its multiply-accumulates per image."""
    state = net.embed(images)
    x, size = state.tokens, torch.ones(*state.tokens.shape[:2], 1)
    source = torch.arange(x.shape[1]).expand(len(x), -1)
    dim, total = x.shape[-1], 0
    for block in net.blocks:
        normed, attn, length = block.norm1(x), block.attn, x.shape[1]
        qkv = attn.qkv(normed).unflatten(-1, (3, attn.num_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        bias = size.log().transpose(1, 2)[:, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + block.ls1(attn.proj(y.transpose(1, 2).flatten(2)))
        total += 4 * dim**2 * length + 2 * dim * length**2
        if r:
            x, size, source = merged(x, size, k.mean(1), source, r, net.num_prefix)
        total += 8 * dim**2 * x.shape[1]
        x = block.feed(x)
    flops.append(total)
    x = x.gather(1, source[..., None].expand(-1, -1, dim))
    return net.finish(state._replace(tokens=x))


def run_cluster(net, images: Tensor, after: int, grid: tuple[int, int], flops: list):
    """Run a PlainViT with Expedit's clusters after a block."""
    state = net.embed(images)
    dim, total, first = state.tokens.shape[-1], 0, net.num_prefix

    def cost(length: int) -> int:
        return 12 * dim**2 * length + 2 * dim * length**2

    for i in range(after):
        state = net.run_block(state, i)
        total += cost(state.tokens.shape[1])
    prefix, patches = state.tokens[:, :first], state.tokens[:, first:]
    feature_map = patches.transpose(1, 2).unflatten(2, state.grid)
    centres = F.adaptive_avg_pool2d(feature_map, grid).flatten(2).transpose(1, 2)
    for _ in range(ITERATIONS):
        weights = (-torch.cdist(patches, centres).square() / TEMPERATURE).softmax(-1)
        centres = weights.transpose(1, 2) @ patches
        centres = centres / weights.sum(1)[..., None].clamp(min=1e-6)
        total += 2 * dim * patches.shape[1] * centres.shape[1]
    distance, nearest = torch.cdist(patches, centres).topk(
        min(NEAREST, centres.shape[1]), largest=False
    )
    x = torch.cat([prefix, centres], dim=1)
    for i in range(after, net.depth):
        x = net.run_layers(i, x, state.grid)
        total += cost(x.shape[1])
    prefix, outputs = x[:, :first], x[:, first:]
    weights = (-distance.square() / TEMPERATURE).softmax(-1)
    batch = torch.arange(len(x))[:, None, None]
    restored = (outputs[batch, nearest] * weights[..., None]).sum(2)
    flops.append(total)
    return net.finish(state._replace(tokens=torch.cat([prefix, restored], dim=1)))


def main() -> None:
    args = parse_args()

    from mmengine.runner import Runner

    from snnet_mm.utils import write_json

    cfg = load_config(args.config, args.cfg_options)
    cfg.load_from, cfg.work_dir = args.checkpoint, 'work_dirs/token_reduction'
    runner = Runner.from_cfg(cfg)
    runner.load_or_resume()
    net = runner.model.backbone
    rows = []
    methods = [('whole', None)]
    methods += [('tome', r) for r in args.tome] + [('cluster', c) for c in args.cluster]
    for name, setting in methods:
        flops: list[int] = []

        def forward(images, name=name, setting=setting, flops=flops):
            if name == 'whole':
                state = run_tome(net, images, 0, flops)
            elif name == 'tome':
                state = run_tome(net, images, setting, flops)
            else:
                after, _, grid = setting.partition(':')
                grid = tuple(int(n) for n in grid.split('x'))
                state = run_cluster(net, images, int(after), grid, flops)
            return (net.to_output(state, net.with_cls),)

        net.forward = forward
        metrics = runner.test()
        mean = sum(flops) / len(flops)
        rows.append(dict(method=name, setting=setting, flops=mean, metrics=metrics))
        print(json.dumps(rows[-1], default=float), flush=True)
        write_json(args.out, rows)
    del net.forward


if __name__ == '__main__':
    run_command(main)
