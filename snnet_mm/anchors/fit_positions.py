"""Position embeddings of a checkpoint, fitted to an anchor's grid and tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import torch
from mmengine.logging import print_log
from torch import Tensor

from .position import resize_bias_table, resize_offsets, resize_pos_embed

Grid = tuple[int, int]


def fit_pos_embed(
    weights: Mapping[str, Tensor],
    grid: Grid,
    num_entries: int,
    loaded_grid: Grid | None = None,
) -> dict[str, Tensor]:
    """Resize ``pos_embed`` and bridge its entries for prefix tokens, exactly.

    Entries that the anchor lacks are added to the tokens themselves, entries that the
    checkpoint lacks are zero: both give the same sums.

    Args:
        weights: Weights in our names.
        grid: Rows and columns of the anchor's embedding.
        num_entries: Prefix tokens with an entry in the anchor's embedding.
        loaded_grid: Rows and columns of the checkpoint's embedding, if known.

    Raises:
        ValueError: If the checkpoint's grid cannot be told or its entries not bridged.
    """
    weights = dict(weights)
    pos_embed = weights['pos_embed']
    if pos_embed.ndim != 3:
        raise ValueError(
            f'pos_embed has shape {tuple(pos_embed.shape)}; allowed is '
            '(1, tokens, width)'
        )
    num_cls = int('cls_token' in weights)
    num_prefix = num_cls + _length(weights.get('reg_token'))
    num_loaded, old = _read_layout(
        'pos_embed',
        pos_embed.shape[1],
        {0, num_cls, num_prefix},
        _count_patches,
        grid,
        loaded_grid,
    )
    entries, patches = pos_embed[:, :num_loaded], pos_embed[:, num_loaded:]
    if num_loaded > num_entries > 0:
        raise ValueError(
            f'pos_embed has entries for {num_loaded} prefix tokens, the anchor has '
            f'{num_entries} (config keys: cls_token, num_registers)'
        )
    if num_entries:
        padding = entries.new_zeros(1, num_entries - num_loaded, entries.shape[2])
        entries = torch.cat([entries, padding], dim=1)
    for name in () if num_entries else ('cls_token', 'reg_token'):
        if entries.shape[1]:
            own = _length(weights.get(name))
            weights[name] = weights[name] + entries[:, :own]
            entries = entries[:, own:]
    if old != grid:
        print_log(
            f'pos_embed of {old[0]}x{old[1]} patches, with {num_loaded} entries for '
            f'prefix tokens, resized to {grid[0]}x{grid[1]}',
            logger='current',
        )
    resized = resize_pos_embed(patches, old, grid, num_prefix=0)
    weights['pos_embed'] = torch.cat([entries, resized], dim=1)
    return weights


def fit_bias_tables(
    weights: Mapping[str, Tensor],
    grid: Grid,
    num_prefix: int,
    loaded_grid: Grid | None = None,
) -> dict[str, Tensor]:
    """Resize the relative position bias tables of all blocks.

    Args:
        weights: Weights in our names.
        grid: Rows and columns of the anchor's tables.
        num_prefix: The anchor's prefix tokens.
        loaded_grid: Rows and columns that the checkpoint's tables are for, if known.

    Raises:
        ValueError: If the checkpoint's grid cannot be told, or only one of both has
            rows for prefix tokens.
    """
    weights = dict(weights)
    num_rows = 3 if num_prefix else 0
    for key, table in weights.items():
        if not key.endswith('.rel_pos_bias.table'):
            continue
        num_loaded, old = _read_layout(
            key, len(table), {0, 3}, _count_offsets, grid, loaded_grid
        )
        if num_loaded != num_rows:
            raise ValueError(
                f'{key} has {num_loaded} rows for prefix tokens, the anchor has '
                f'{num_rows} (config key: cls_token)'
            )
        weights[key] = resize_bias_table(table, old, grid)
    return weights


def fit_offsets(
    weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Resize the decomposed relative position embeddings of all blocks.

    Args:
        weights: Weights in our names.
        wanted: The anchor's own, whose lengths are taken.
    """
    return {
        key: resize_offsets(value, (len(wanted[key]) + 1) // 2)
        if key in wanted and '.rel_pos_bias.rel_pos_' in key
        else value
        for key, value in weights.items()
    }


def _read_layout(
    name: str,
    length: int,
    extras: Collection[int],
    count: Callable[[Grid], int],
    grid: Grid,
    loaded_grid: Grid | None,
) -> tuple[int, Grid]:
    """How many of ``length`` entries belong to no patch, and the grid of the others.

    Files do not say it. It may be the anchor's grid or a square; where both or several
    numbers of extra entries are possible, guessing could garble the embedding.
    """
    readings = set()
    for extra in extras:
        root = math.isqrt(max(length - extra, 0))
        squares = [(root, root), ((root + 1) // 2,) * 2]
        for candidate in [loaded_grid] if loaded_grid else [grid, *squares]:
            if min(candidate) > 0 and count(candidate) == length - extra:
                readings.add((extra, candidate))
    if len(readings) == 1:
        return readings.pop()
    if readings:
        grids = ' or '.join(f'{h}x{w} patches' for _, (h, w) in sorted(readings))
        problem = f'could be for {grids}'
    else:
        expected = loaded_grid or grid
        problem = (
            f'is neither for {expected[0]}x{expected[1]} patches nor for a square of '
            f'them, with {" or ".join(map(str, sorted(extras)))} entries for others'
        )
    raise ValueError(
        f'{name} with {length} entries {problem}; say the image size in pixels that '
        'the checkpoint is for (config key: init_cfg.img_size)'
    )


def _count_patches(grid: Grid) -> int:
    return grid[0] * grid[1]


def _count_offsets(grid: Grid) -> int:
    return (2 * grid[0] - 1) * (2 * grid[1] - 1)


def _length(tokens: Tensor | None) -> int:
    return 0 if tokens is None else tokens.shape[1]
