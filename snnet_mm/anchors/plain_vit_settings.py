"""Settings of a plain ViT, checked and completed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snnet_mm.utils import check, is_number, is_whole

ARCHITECTURES = {
    'tiny': dict(embed_dims=192, depth=12, num_heads=3),
    'small': dict(embed_dims=384, depth=12, num_heads=6),
    'base': dict(embed_dims=768, depth=12, num_heads=12),
    'large': dict(embed_dims=1024, depth=24, num_heads=16),
    'huge': dict(embed_dims=1280, depth=32, num_heads=16),
}
LORA_TARGETS = ('qkv', 'proj')


def read_arch(arch: str | dict) -> tuple[int, int, int, float]:
    """Return width, depth, attention heads and mlp ratio."""
    if isinstance(arch, str):
        check(arch in ARCHITECTURES, 'arch', arch, ARCHITECTURES)
        arch = ARCHITECTURES[arch]
    needed = ('embed_dims', 'depth', 'num_heads')
    known = isinstance(arch, Mapping) and {*needed} <= {*arch} <= {*needed, 'mlp_ratio'}
    check(known, 'arch', arch, f'a name, or a dict of {needed} and mlp_ratio')
    (width, depth, heads), ratio = (arch[k] for k in needed), arch.get('mlp_ratio', 4)
    right = all(is_whole(n, 1) for n in (width, depth, heads)) and is_number(ratio)
    check(
        right and ratio > 0 and width % heads == 0,
        'arch',
        dict(arch),
        'positive whole numbers, embed_dims divisible by num_heads, mlp_ratio above 0',
    )
    return width, depth, heads, ratio


def read_lora(lora: Mapping) -> dict:
    """Return rank, alpha and targets of low-rank updates."""
    settings = dict(alpha=1, targets=LORA_TARGETS) | dict(lora)
    known = set(settings) == {'rank', 'alpha', 'targets'}
    targets = set(settings['targets'])
    check(
        known and targets and targets <= set(LORA_TARGETS),
        'lora',
        dict(lora),
        f'a dict with rank and, optionally, alpha and targets among {LORA_TARGETS}',
    )
    return settings


def check_settings(
    img_size: int | Sequence[int],
    patch_size: int,
    num_registers: int,
    drop_path_rate: float,
    layer_scale_init: float | None,
) -> None:
    """Refuse a size, number or rate that makes no sense."""
    check(is_whole(patch_size, 1), 'patch_size', patch_size, 'pixels, 1 or more')
    sides = img_size if isinstance(img_size, Sequence) else (img_size, img_size)
    right = len(sides) == 2 and all(is_whole(side, patch_size) for side in sides)
    allowed = f'pixels, or height and width, of a patch ({patch_size}) or more'
    check(right, 'img_size', img_size, allowed)
    check(is_whole(num_registers, 0), 'num_registers', num_registers, '0 or more')
    check_drop_path_rate(drop_path_rate)
    right = layer_scale_init is None or is_number(layer_scale_init)
    check(right, 'layer_scale_init', layer_scale_init, 'None or a number')


def check_drop_path_rate(rate: float) -> None:
    """Refuse what is no probability below 1."""
    right = is_number(rate) and 0 <= rate < 1
    check(right, 'drop_path_rate', rate, 'from 0 to below 1')


def read_windows(
    window_size: int,
    global_blocks: Sequence[int],
    depth: int,
    num_prefix: int,
    rel_pos_bias: bool,
    decomposed_rel_pos: bool,
) -> list[int]:
    """Return the window size of every block, 0 for a global one."""
    check(is_whole(window_size, 0), 'window_size', window_size, '0 (none) or more')
    right = all(i in range(depth) for i in global_blocks)
    right = right and (window_size or not len(global_blocks))
    allowed = f'blocks 0 to {depth - 1}, and none where window_size is 0'
    check(right, 'global_blocks', tuple(global_blocks), allowed)
    local = window_size or decomposed_rel_pos
    allowed = '{} with window_size or decomposed_rel_pos'
    none = allowed.format('0 prefix tokens, which lie nowhere,')
    check(not (num_prefix and local), 'cls_token, num_registers', num_prefix, none)
    right = not (rel_pos_bias and local)
    check(right, 'rel_pos_bias', rel_pos_bias, allowed.format(False))
    return [0 if i in global_blocks else window_size for i in range(depth)]
