"""Position embeddings of a checkpoint, fitted to an anchor's grid and tokens."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import torch
import torch.nn.functional as F
from mmengine.logging import print_log
from torch import Tensor

from .position import resize_bias_table, resize_offsets, resize_pos_embed

Grid = tuple[int, int]
Weights = Mapping[str, Tensor]


def fit_pos_embed(
    weights: Weights, grid: Grid, num_entries: int, loaded_grid: Grid | None = None
) -> dict[str, Tensor]:
    """Resize ``pos_embed`` and bridge its entries for prefix tokens, exactly.

    Entries that the anchor lacks are added to the tokens themselves, entries that the
    checkpoint lacks are zero: both give the same sums.

    Args:
        weights: Weights in our names.
        grid: Rows and columns of the anchor's embedding.
        num_entries: Prefix tokens with an entry in the anchor's embedding.
        loaded_grid: Rows and columns of the checkpoint's embedding, if known.
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
        text = (
            f'pos_embed of {old[0]}x{old[1]} patches, with {num_loaded} entries for '
            f'prefix tokens, resized to {grid[0]}x{grid[1]}'
        )
        print_log(text, logger='current')
    resized = resize_pos_embed(patches, old, grid, num_prefix=0)
    weights['pos_embed'] = torch.cat([entries, resized], dim=1)
    return weights


def fit_bias_tables(
    weights: Weights, grid: Grid, num_prefix: int, loaded_grid: Grid | None = None
) -> dict[str, Tensor]:
    """Resize the relative position bias tables of all blocks.

    See :func:`fit_pos_embed`; ``num_prefix`` is that of the anchor.
    """
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
    """Resize decomposed relative position embeddings to the lengths of the own ones."""
    return {
        key: resize_offsets(value, (len(own[key]) + 1) // 2)
        if key in own and '.rel_pos_bias.rel_pos_' in key
        else value
        for key, value in weights.items()
    }


def _read_layout(
    name: str,
    length: int,
    extras: Collection[int],
    grid: Grid,
    loaded_grid: Grid | None,
    offsets: bool = False,
) -> tuple[int, Grid]:
    """Return how many entries, among ``extras``, belong to no patch, and the grid.

    Files do not say it. It may be the anchor's grid or a square; where several readings
    are possible, guessing could garble the embedding.
    """
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
        f'{name} with {length} entries {fits}; say the image size in pixels that the '
        'checkpoint is for (config key: init_cfg.img_size)'
    )
