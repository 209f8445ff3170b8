"""Weights of a smaller plain ViT, taken from a larger one."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from snnet_mm.utils import check, is_whole

from .pretrained import Weights

_BLOCK = re.compile(r'blocks\.(\d+)\.')


def keep_blocks(weights: Weights, blocks: Sequence[int]) -> dict[str, Tensor]:
    """Keep only some blocks of a plain ViT, in ascending order, and renumber them."""
    depth = 1 + max(int(m[1]) for m in map(_BLOCK.match, weights) if m)
    rising = all(is_whole(i, 0) for i in blocks) and list(blocks) == sorted(set(blocks))
    right = rising and 0 < len(blocks) < depth and blocks[-1] < depth
    wanted = f'some of the blocks 0 to {depth - 1}, in rising order'
    check(right, '--blocks', list(blocks), wanted)
    numbers = {old: new for new, old in enumerate(blocks)}
    kept = {}
    for name, value in weights.items():
        if (match := _BLOCK.match(name)) is None:
            kept[name] = value
        elif (number := numbers.get(int(match[1]))) is not None:
            kept[f'blocks.{number}.{name[match.end() :]}'] = value
    return kept


def map_embedding(weights: Weights, weight: Tensor, bias: Tensor) -> Weights:
    """Fold an affine map after the embedding into the weights of a plain ViT.

    The embedding is linear in its patches, positions and prefix tokens, so the map
    needs no layer.
    """
    mapped = dict(weights)
    proj = 'patch_embed.proj.weight', 'patch_embed.proj.bias'
    mapped[proj[0]] = torch.einsum('oc,cihw->oihw', weight, weights[proj[0]])
    mapped[proj[1]] = weight @ weights[proj[1]] + bias
    for name, offset in (('pos_embed', 0), ('cls_token', bias), ('reg_token', bias)):
        if name in weights:
            mapped[name] = weights[name] @ weight.T + offset
    return mapped
