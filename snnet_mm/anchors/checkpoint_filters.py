"""Conversion of published plain ViT weights to our names and an anchor's grid."""

import math
import re
from collections.abc import Collection, Sequence

import torch
import torch.nn.functional as F
from mmengine.logging import print_log
from torch import Tensor

from snnet_mm.utils import check

from .position import Grid, resize_bias_table, resize_offsets, resize_pos_embed
from .pretrained import Weights, rename

# Classifiers, pretraining decoders and buffers derived from the grid.
_LEFT_OUT = re.compile(
    r'^(head|head_dist|lm_head|fc_norm|pre_logits)\.'
    r'|^mask_token$|^decoder_(embed|pos_embed|blocks|norm|pred)(\.|$)'
    r'|relative_position_index$'
)
# Applied to every key, in this order.
_RENAMES = (
    (r'\.gamma_([12])$', r'.ls\1.gamma'),  # official DeiT3, BEiT
    (r'^register_tokens$', 'reg_token'),  # official DINOv2
    (r'^dist_token$', 'reg_token'),  # distilled DeiT; a register here
    # ViTDet and SAM store decomposed relative positions in the attention itself.
    (r'\.attn\.rel_pos_([hw])$', r'.attn.rel_pos_bias.rel_pos_\1'),
    (r'\.mlp\.lin([12])\.', r'.mlp.fc\1.'),
    # mmpretrain's VisionTransformer
    (r'^patch_embed\.projection\.', 'patch_embed.proj.'),
    (r'^ln1\.', 'norm.'),
    (r'^layers\.', 'blocks.'),
    (r'\.ln([12])\.', r'.norm\1.'),
    (r'\.(?:attn|ffn)\.gamma([12])\.weight$', r'.ls\1.gamma'),
    (r'\.ffn\.layers\.0\.0\.', '.mlp.fc1.'),
    (r'\.ffn\.layers\.1\.', '.mlp.fc2.'),
)
_BIAS_TABLE = 'relative_position_bias_table'


def to_our_names(weights: Weights) -> dict[str, Tensor]:
    """Return weights of any supported family in our names, without classifier."""
    kept = {k: v for k, v in weights.items() if not _LEFT_OUT.search(k)}
    renamed = {rename(k, _RENAMES): v for k, v in kept.items()}
    if any(key.endswith('.attn.rel_pos_h') for key in weights):
        return _without_cls_entry(renamed)
    return _join_biases(renamed)


def _join_biases(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Merge BEiT's biases of q and v, and its per-block and shared bias tables."""
    shared = weights.pop(f'rel_pos_bias.{_BIAS_TABLE}', None)
    blocks = {m[0] for k in weights if (m := re.match(r'blocks\.\d+', k))}
    for attn in (f'{block}.attn' for block in sorted(blocks)):
        if {f'{attn}.q_bias', f'{attn}.v_bias'} <= weights.keys():
            q, v = (weights.pop(f'{attn}.{name}_bias') for name in 'qv')
            weights[f'{attn}.qkv.bias'] = torch.cat([q, torch.zeros_like(q), v])
        own = weights.pop(f'{attn}.{_BIAS_TABLE}', None)
        tables = [table for table in (own, shared) if table is not None]
        if tables:
            weights[f'{attn}.rel_pos_bias.table'] = sum(tables)
    return weights


def _without_cls_entry(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Drop the cls position from ViTDet's embedding; flatten SAM's, which is a map."""
    pos_embed = weights.get('pos_embed')
    if pos_embed is not None:
        num_patches = pos_embed.shape[1] - 1
        if pos_embed.ndim == 4:
            weights['pos_embed'] = pos_embed.flatten(1, 2)
        elif 'cls_token' not in weights and math.isqrt(num_patches) ** 2 == num_patches:
            weights['pos_embed'] = pos_embed[:, 1:]
    return weights


def fit_pos_embed(
    weights: Weights,
    grid: Grid,
    num_entries: int,
    loaded_grid: Grid | None = None,
    antialias: bool = False,
) -> dict[str, Tensor]:
    """Resize ``pos_embed`` to a grid and convert its entries for prefix tokens.

    If ``num_entries`` is 0, these entries are added to the tokens themselves. Entries
    that the checkpoint lacks are zero. Both keep the sums of tokens and positions.
    """
    weights, tokens = dict(weights), ('cls_token', 'reg_token')
    pos_embed = weights['pos_embed']
    lengths = [weights[name].shape[1] if name in weights else 0 for name in tokens]
    extras, length = {0, lengths[0], sum(lengths)}, pos_embed.shape[1]
    num_loaded, old = _read_layout('pos_embed', length, extras, grid, loaded_grid)
    entries, patches = pos_embed[:, :num_loaded], pos_embed[:, num_loaded:]
    if num_entries:
        if num_loaded > num_entries:
            raise ValueError(
                f'pos_embed has entries for {num_loaded} prefix tokens, the anchor has '
                f'{num_entries} (config keys: cls_token, num_registers)'
            )
        entries = F.pad(entries, (0, 0, 0, num_entries - num_loaded))
    else:
        for name, length in zip(tokens, lengths, strict=True):
            if entries.shape[1]:
                weights[name] = weights[name] + entries[:, :length]
                entries = entries[:, length:]
    if old != grid:
        text = f'pos_embed of {old[0]}x{old[1]} patches, with {num_loaded} entries for '
        text += f'prefix tokens, resized to {grid[0]}x{grid[1]}'
        print_log(text, logger='current')
    resized = resize_pos_embed(patches, old, grid, num_prefix=0, antialias=antialias)
    weights['pos_embed'] = torch.cat([entries, resized], dim=1)
    return weights


def fit_bias_tables(
    weights: Weights, grid: Grid, num_prefix: int, loaded_grid: Grid | None = None
) -> dict[str, Tensor]:
    """Resize the relative position bias tables of all blocks to an anchor's grid."""
    weights, num_rows = dict(weights), 3 if num_prefix else 0
    for key in [k for k in weights if k.endswith('.rel_pos_bias.table')]:
        layout = key, len(weights[key]), {0, 3}, grid, loaded_grid
        num_loaded, old = _read_layout(*layout, offsets=True)
        if num_loaded != num_rows:
            raise ValueError(
                f'{key} has {num_loaded} rows for prefix tokens, the anchor has '
                f'{num_rows} (config key: cls_token)'
            )
        weights[key] = resize_bias_table(weights[key], old, grid)
    return weights


def fit_offsets(weights: Weights, own: Weights) -> dict[str, Tensor]:
    """Resize decomposed relative position embeddings to the module's own lengths."""
    weights = dict(weights)
    for key in weights.keys() & own.keys():
        if '.rel_pos_bias.rel_pos_' in key:
            weights[key] = resize_offsets(weights[key], (len(own[key]) + 1) // 2)
    return weights


def _read_layout(
    name: str,
    length: int,
    extras: Collection[int],
    grid: Grid,
    loaded_grid: Grid | None,
    offsets: bool = False,
) -> tuple[int, Grid]:
    """Infer the number of non-patch entries and the grid; raise if not unique."""
    readings = set()
    for extra in extras:
        root = math.isqrt(max(length - extra, 0))
        side = (root + 1) // 2 if offsets else root
        for h, w in [loaded_grid] if loaded_grid else [grid, (side, side)]:
            number = (2 * h - 1) * (2 * w - 1) if offsets else h * w
            if min(h, w) > 0 and number == length - extra:
                readings.add((extra, (h, w)))
    if len(readings) == 1:
        return readings.pop()
    found = ' or '.join(f'{h}x{w} patches' for _, (h, w) in sorted(readings))
    h, w = loaded_grid or grid
    fits = f'fits {found}' if found else f'fits neither {h}x{w} patches nor a square'
    raise ValueError(
        f'{name} with {length} entries {fits}; set the image size in pixels of the '
        'checkpoint (config key: init_cfg.img_size)'
    )


def cut_blocks(weights: Weights, blocks: Sequence[int], depth: int) -> Weights:
    """Keep a range of blocks, given by its begin and end, renumbered from 0."""
    right = len(blocks) == 2 and blocks[1] - blocks[0] == depth
    expected = f'the begin and end of {depth} blocks'
    check(right, 'init_cfg.blocks', tuple(blocks), expected)
    begin, end = blocks
    cut = {}
    for key, value in weights.items():
        found = re.fullmatch(r'blocks\.(\d+)\.(.+)', key)
        if found is None:
            cut[key] = value
        elif begin <= int(found[1]) < end:
            cut[f'blocks.{int(found[1]) - begin}.{found[2]}'] = value
    return cut
