"""What the settings of a plain ViT can be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from snnet_mm.utils import is_number, is_whole

ARCHITECTURES = {
    'tiny': dict(embed_dims=192, depth=12, num_heads=3),
    'small': dict(embed_dims=384, depth=12, num_heads=6),
    'base': dict(embed_dims=768, depth=12, num_heads=12),
    'large': dict(embed_dims=1024, depth=24, num_heads=16),
    'huge': dict(embed_dims=1280, depth=32, num_heads=16),
}


LORA_TARGETS = ('qkv', 'proj')


def read_lora(lora: dict) -> dict:
    """Rank, alpha and targets of low-rank updates.

    Raises:
        ValueError: If the rank is missing, or a key or target is unknown.
    """
    settings = dict(alpha=1, targets=LORA_TARGETS) | dict(lora)
    targets = tuple(settings['targets'])
    known = set(settings) == {'rank', 'alpha', 'targets'}
    if not known or not targets or not set(targets) <= set(LORA_TARGETS):
        raise ValueError(
            f'lora={dict(lora)} of PlainViT; wanted is a rank, allowed are alpha, and '
            f'as targets the linear layers {LORA_TARGETS} of the attention (config '
            'key: lora)'
        )
    return settings


def check_settings(
    img_size: int | Sequence[int],
    patch_size: int,
    num_registers: int,
    drop_path_rate: float,
    layer_scale_init: float | None,
) -> None:
    """Refuse a size, number or rate that makes no sense.

    Raises:
        ValueError: If one does not; the message names its config key.
    """
    sides = img_size if isinstance(img_size, Sequence) else (img_size, img_size)
    patch = is_whole(patch_size, 1)
    least = patch_size if patch else 1
    image = len(sides) == 2 and all(is_whole(side, least) for side in sides)
    rate = is_number(drop_path_rate) and 0 <= drop_path_rate < 1
    start = layer_scale_init is None or is_number(layer_scale_init)
    for key, value, allowed in (
        ('patch_size', patch_size, patch),
        ('img_size', img_size, image),
        ('num_registers', num_registers, is_whole(num_registers, 0)),
        ('drop_path_rate', drop_path_rate, rate),
        ('layer_scale_init', layer_scale_init, start),
    ):
        if not allowed:
            raise ValueError(
                f'{key}={value!r} of PlainViT; allowed are a patch of 1 pixel or more, '
                'images no smaller than a patch, 0 registers or more, drop path rates '
                'from 0 to below 1, and as the start of LayerScale None or a number '
                f'(config key: {key})'
            )


def read_windows(
    window_size: int,
    global_blocks: Sequence[int],
    depth: int,
    num_prefix: int,
    rel_pos_bias: bool,
    decomposed_rel_pos: bool,
) -> list[int]:
    """The window size of every block, 0 for a global one.

    Raises:
        ValueError: If windows or positions relative to the query are asked for together
            with what they do not go with.
    """
    wrong = [i for i in global_blocks if not 0 <= i < depth]
    if window_size < 0 or wrong or (len(global_blocks) > 0 and not window_size):
        raise ValueError(
            f'window_size={window_size}, global_blocks={tuple(global_blocks)} of an '
            f'anchor of depth {depth}; allowed are a size of 0 (no windows) or more, '
            f'and with windows the global blocks 0 to {depth - 1} (config keys: '
            'window_size, global_blocks)'
        )
    if (window_size or decomposed_rel_pos) and num_prefix:
        raise ValueError(
            f'window_size={window_size}, decomposed_rel_pos={decomposed_rel_pos} with '
            f'{num_prefix} prefix tokens, which lie in no window and at no place; '
            'allowed are cls_token=False and num_registers=0 (config keys: cls_token, '
            'num_registers)'
        )
    if rel_pos_bias and (window_size or decomposed_rel_pos):
        raise ValueError(
            f'rel_pos_bias=True with window_size={window_size}, decomposed_rel_pos='
            f'{decomposed_rel_pos}; allowed is one kind of relative position, and '
            'windows only with the decomposed one (config keys: rel_pos_bias, '
            'decomposed_rel_pos)'
        )
    return [0 if i in global_blocks else window_size for i in range(depth)]


def check_held_blocks(
    held_blocks: Collection[int] | None, depth: int
) -> Collection[int]:
    """The blocks that are held, by default all.

    Raises:
        ValueError: If there is no such block.
    """
    if held_blocks is None:
        return range(depth)
    wrong = [i for i in held_blocks if not 0 <= i < depth]
    if wrong:
        raise ValueError(
            f'held_blocks={tuple(held_blocks)} of an anchor of depth {depth}; allowed '
            f'are blocks 0 to {depth - 1} (config key: held_blocks)'
        )
    return held_blocks


def check_frozen_stages(frozen_stages: int, depth: int) -> int:
    """The number of stages that are frozen, if there are so many.

    Raises:
        ValueError: If there are not.
    """
    if not -1 <= frozen_stages <= depth:
        raise ValueError(
            f'frozen_stages={frozen_stages} of an anchor of depth {depth}; allowed are '
            f'-1 (nothing), 0 (the embedding) to {depth} (config key: frozen_stages)'
        )
    return frozen_stages


def read_arch(arch: str | dict) -> tuple[int, int, int, float]:
    """Width, depth, attention heads and mlp ratio.

    Raises:
        ValueError: If the name is unknown, or a number is missing or makes no sense.
    """
    if isinstance(arch, str):
        if arch not in ARCHITECTURES:
            raise ValueError(
                f'arch={arch!r} of PlainViT is unknown; allowed are '
                f'{sorted(ARCHITECTURES)} or a dict (config key: arch)'
            )
        arch = ARCHITECTURES[arch]
    keys = {'embed_dims', 'depth', 'num_heads'}
    known = isinstance(arch, Mapping) and keys <= set(arch) <= keys | {'mlp_ratio'}
    if not known:
        raise ValueError(
            f'arch={arch!r} of PlainViT; allowed keys are {sorted(keys)} and '
            'mlp_ratio (config key: arch)'
        )
    ratio = arch.get('mlp_ratio', 1)
    positive = is_number(ratio) and ratio > 0
    if not positive or not all(is_whole(arch[key], 1) for key in keys):
        raise ValueError(
            f'arch={dict(arch)} of PlainViT; allowed are positive values, whole ones '
            'but for the mlp_ratio (config key: arch)'
        )
    if arch['embed_dims'] % arch['num_heads']:
        raise ValueError(
            f'{arch["num_heads"]} heads do not divide a width of {arch["embed_dims"]} '
            '(config key: arch.num_heads)'
        )
    mlp_ratio = arch.get('mlp_ratio', 4)
    return arch['embed_dims'], arch['depth'], arch['num_heads'], mlp_ratio
