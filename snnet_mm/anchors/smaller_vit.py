"""Weights of a smaller plain ViT, taken from a larger one."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from snnet_mm.utils import check, is_whole

from .pretrained import Weights, select_prefix

_BLOCK = re.compile(r'blocks\.(\d+)\.')


def keep_blocks(weights: Weights, blocks: Sequence[int]) -> dict[str, Tensor]:
    """Return the weights of a plain ViT with only some blocks, in rising order."""
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


def principal_directions(tokens: Sequence[Tensor], width: int) -> Tensor:
    """Return orthonormal columns ``(C, width)`` in which tokens vary most.

    The mean over channels is taken out of every token, as the layer norms do that read
    them. Tensors ``(N, C)``, after several blocks, count alike, whatever their scale.
    """
    (channels,) = {x.shape[-1] for x in tokens}
    right = is_whole(width, 1) and width < channels
    check(right, '--width', width, f'less than {channels}, the width of the anchor')
    total = torch.zeros(channels, channels, dtype=torch.float64)
    for x in tokens:
        x = x.double() - x.double().mean(dim=-1, keepdim=True)
        covariance = x.T @ x
        total += covariance / covariance.trace()
    return torch.linalg.eigh(total)[1][:, -width:].flip(1).float()


def contract_width(
    weights: Weights, basis: Tensor, num_heads: int
) -> dict[str, Tensor]:
    """Return the weights of a narrower plain ViT, whose tokens are ``tokens @ basis``.

    The affine part of every layer norm goes into the linear layer that reads it, and
    LayerScale into the one that it scales. Of ``num_heads`` heads, whose width stays,
    and of the hidden units, those with the largest weights are kept. What norms divide
    by changes with the width by the square root of the ratio, on average. ``basis`` has
    orthonormal columns ``(C, c)``; see :func:`principal_directions`.
    """
    wide, narrow = basis.shape
    size = wide // num_heads
    wanted = f'multiples of {size}, the width of a head'
    check(narrow % size == 0, '--width', narrow, wanted)
    known = not any('rel_pos' in name for name in weights)
    check(
        known, 'backbone', 'relative position bias', 'absolute positions, for --width'
    )
    made = {
        k: v @ basis for k, v in weights.items() if k.endswith(('_embed', '_token'))
    }
    made['patch_embed.proj.weight'] = torch.einsum(
        'oihw,od->dihw', weights['patch_embed.proj.weight'], basis
    )
    made['patch_embed.proj.bias'] = weights['patch_embed.proj.bias'] @ basis
    for prefix in dict.fromkeys(m[0] for m in map(_BLOCK.match, weights) if m):
        block = select_prefix(weights, prefix)
        for name, value in _contract_block(block, basis, size).items():
            made[prefix + name] = value
    if 'norm.weight' in weights:  # a final norm scales what the head reads
        made['norm.weight'] = torch.full((narrow,), (narrow / wide) ** 0.5)
        made['norm.bias'] = weights['norm.bias'] @ basis
    return made


def _contract_block(block: Weights, basis: Tensor, size: int) -> dict[str, Tensor]:
    (wide, narrow), made = basis.shape, {}

    def reads(norm: str, linear: str, rows: Tensor) -> None:
        weight, gamma = block[f'{linear}.weight'][rows], block[f'{norm}.weight']
        made[f'{norm}.weight'] = torch.ones(narrow)
        made[f'{norm}.bias'] = torch.zeros(narrow)
        scale = (wide / narrow) ** 0.5
        made[f'{linear}.weight'] = scale * (weight * gamma) @ basis
        bias = block.get(f'{linear}.bias')
        bias = 0 if bias is None else bias[rows]
        made[f'{linear}.bias'] = bias + weight @ block[f'{norm}.bias']

    def writes(linear: str, layer_scale: str, columns: Tensor) -> None:
        gamma = block.get(f'{layer_scale}.gamma', torch.ones(wide))
        if f'{layer_scale}.gamma' in block:
            made[f'{layer_scale}.gamma'] = torch.ones(narrow)
        weight = gamma[:, None] * block[f'{linear}.weight'][:, columns]
        made[f'{linear}.weight'] = basis.T @ weight
        made[f'{linear}.bias'] = (gamma * block[f'{linear}.bias']) @ basis

    out = block['attn.proj.weight'].unflatten(1, (-1, size)).norm(dim=(0, 2))
    values = block['attn.qkv.weight'][2 * wide :].unflatten(0, (-1, size))
    heads = (out * values.norm(dim=(1, 2))).topk(narrow // size).indices.sort().values
    channels = (heads[:, None] * size + torch.arange(size)).flatten()
    reads('norm1', 'attn.qkv', torch.cat([channels + k * wide for k in range(3)]))
    writes('attn.proj', 'ls1', channels)
    fc1, fc2 = block['mlp.fc1.weight'], block['mlp.fc2.weight']
    importance = fc1.norm(dim=1) * fc2.norm(dim=0)
    units = importance.topk(len(fc1) * narrow // wide).indices.sort().values
    reads('norm2', 'mlp.fc1', units)
    writes('mlp.fc2', 'ls2', units)
    return made
