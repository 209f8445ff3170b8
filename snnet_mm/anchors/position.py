"""Position embeddings of plain ViTs: absolute, and relative biases of attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def grid_of(img_size: int | Sequence[int], patch_size: int) -> tuple[int, int]:
    """Rows and columns of patches of an image, the last ones padded if need be."""
    height, width = (img_size,) * 2 if isinstance(img_size, int) else img_size
    return math.ceil(height / patch_size), math.ceil(width / patch_size)


def resize_pos_embed(
    pos_embed: Tensor,
    old: tuple[int, int],
    new: tuple[int, int],
    num_prefix: int,
    antialias: bool = True,
) -> Tensor:
    """Resample the patch part of an absolute position embedding, bicubically.

    Args:
        pos_embed: Of shape ``(1, num_prefix + old rows * old columns, C)``.
        old: Rows and columns it is for.
        new: Rows and columns wanted.
        num_prefix: Leading entries that belong to no patch and stay as they are.
        antialias: Whether to antialias, as timm does. The kernel differs too.
    """
    if old == new:
        return pos_embed
    prefix, patches = pos_embed[:, :num_prefix], pos_embed[:, num_prefix:]
    patches = patches.float().unflatten(1, old).permute(0, 3, 1, 2)
    patches = F.interpolate(patches, size=new, mode='bicubic', antialias=antialias)
    patches = patches.flatten(2).transpose(1, 2).to(pos_embed.dtype)
    return torch.cat([prefix, patches], dim=1)


@lru_cache(maxsize=8)
def relative_position_index(grid: tuple[int, int], num_prefix: int) -> Tensor:
    """Row of the bias table for every pair of query and key, ``(L, L)``, on the CPU.

    The table holds ``(2h-1)(2w-1)`` offsets between patches and then, if there are
    prefix tokens, three rows: prefix to any, patch to prefix, prefix to prefix.
    """
    # What is kept must serve everywhere, whatever mode it was first asked for in.
    with torch.inference_mode(False), torch.device('cpu'):
        return _index_of_offsets(*grid, num_prefix)


def _index_of_offsets(h: int, w: int, num_prefix: int) -> Tensor:
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing='ij')
    rows, columns = rows.flatten(), columns.flatten()
    dy = rows[:, None] - rows[None, :] + h - 1
    dx = columns[:, None] - columns[None, :] + w - 1
    between_patches = dy * (2 * w - 1) + dx
    if not num_prefix:
        return between_patches
    num_offsets = (2 * h - 1) * (2 * w - 1)
    index = between_patches.new_empty(h * w + num_prefix, h * w + num_prefix)
    index[num_prefix:, num_prefix:] = between_patches
    index[:num_prefix] = num_offsets
    index[num_prefix:, :num_prefix] = num_offsets + 1
    index[:num_prefix, :num_prefix] = num_offsets + 2
    return index


def resize_bias_table(
    table: Tensor, old: tuple[int, int], new: tuple[int, int]
) -> Tensor:
    """Resample the rows of a relative position bias table, bicubically.

    Args:
        table: Of shape ``((2h-1)(2w-1) + extra rows, heads)``.
        old: Rows and columns of patches, ``h`` and ``w``, that it is for.
        new: Rows and columns of patches wanted.

    Returns:
        The table for the new grid; the extra rows stay as they are.
    """
    if old == new:
        return table
    old, new = [(2 * h - 1, 2 * w - 1) for h, w in (old, new)]
    num_offsets = old[0] * old[1]
    offsets = table[:num_offsets].T.unflatten(1, old)[None]
    offsets = F.interpolate(offsets, size=new, mode='bicubic')[0]
    return torch.cat([offsets.flatten(1).T, table[num_offsets:]])


def gather_bias(
    table: Tensor, old: tuple[int, int], new: tuple[int, int], num_prefix: int
) -> Tensor:
    """The bias ``(1, heads, L, L)`` of all pairs of tokens.

    Args:
        table: See :func:`resize_bias_table`.
        old: Rows and columns of patches that it is for.
        new: Rows and columns of patches wanted.
        num_prefix: Prefix tokens in front of the patches.
    """
    index = relative_position_index(new, num_prefix).to(table.device)
    # By heads, so that what is gathered lies as attention wants it, without a copy.
    by_head = resize_bias_table(table, old, new).T
    return by_head.index_select(1, index.flatten()).view(1, -1, *index.shape)


class RelativePositionBias(nn.Module):
    """BEiT's learned attention bias for every offset between two patches.

    In eval mode the bias is gathered once per grid and kept until the module is set to
    training, moved or loaded.

    Args:
        grid: Rows and columns of patches that the table is for; for another grid the
            table is resampled bicubically.
        num_heads: Attention heads.
        num_prefix: Prefix tokens in front of the patches.
    """

    def __init__(self, grid: tuple[int, int], num_heads: int, num_prefix: int) -> None:
        super().__init__()
        self.grid, self.num_prefix = grid, num_prefix
        num_rows = (2 * grid[0] - 1) * (2 * grid[1] - 1) + (3 if num_prefix else 0)
        self.table = nn.Parameter(torch.zeros(num_rows, num_heads))
        nn.init.trunc_normal_(self.table, std=0.02)
        self._kept: tuple[tuple, Tensor] | None = None

    def forward(self, grid: tuple[int, int], queries: Tensor | None = None) -> Tensor:
        """The bias ``(1, heads, L, L)`` for a grid of patches, whatever the queries."""
        if self.training or torch.is_grad_enabled():
            return self._gather(grid)
        table = self.table
        key = (grid, table.data_ptr(), table.device, table.dtype)
        if self._kept is None or self._kept[0] != key:
            self._kept = (key, self._gather(grid))
        return self._kept[1]

    def fix_grid(self, grid: tuple[int, int]) -> None:
        """Resample the table to a grid, once for all."""
        self.table.data = resize_bias_table(self.table.data, self.grid, grid)
        self.grid, self._kept = grid, None

    def train(self, mode: bool = True) -> RelativePositionBias:
        """Forget the kept bias: what comes next may change the table."""
        self._kept = None
        return super().train(mode)

    def _load_from_state_dict(self, *args, **kwargs) -> None:
        self._kept = None
        super()._load_from_state_dict(*args, **kwargs)

    def _gather(self, grid: tuple[int, int]) -> Tensor:
        return gather_bias(self.table, self.grid, grid, self.num_prefix)


class DecomposedRelPosBias(nn.Module):
    """The attention bias of MViTv2 and ViTDet, which depends on the query.

    A query meets one embedding for the rows and one for the columns that lie between
    it and the key, the same for all heads; the bias is the sum of both products.

    Args:
        grid: Rows and columns that the embeddings are for; for another grid they are
            resampled linearly.
        head_dim: Width of a head.
    """

    def __init__(self, grid: tuple[int, int], head_dim: int) -> None:
        super().__init__()
        self.rel_pos_h = nn.Parameter(torch.zeros(2 * grid[0] - 1, head_dim))
        self.rel_pos_w = nn.Parameter(torch.zeros(2 * grid[1] - 1, head_dim))

    def forward(self, grid: tuple[int, int], queries: Tensor) -> Tensor:
        """The bias ``(B, heads, L, L)``.

        Args:
            grid: Rows and columns of patches; there are no other tokens.
            queries: Unscaled queries ``(B, heads, L, head_dim)``.
        """
        queries = queries.unflatten(2, grid)
        rows = _between(self.rel_pos_h, grid[0])
        columns = _between(self.rel_pos_w, grid[1])
        by_row = torch.einsum('bnhwd,hkd->bnhwk', queries, rows)
        by_column = torch.einsum('bnhwd,wkd->bnhwk', queries, columns)
        bias = by_row[..., :, None] + by_column[..., None, :]
        return bias.flatten(4).flatten(2, 3)

    def fix_grid(self, grid: tuple[int, int]) -> None:
        """Resample the embeddings to a grid, once for all."""
        self.rel_pos_h.data = resize_offsets(self.rel_pos_h.data, grid[0])
        self.rel_pos_w.data = resize_offsets(self.rel_pos_w.data, grid[1])


def resize_offsets(embedding: Tensor, length: int) -> Tensor:
    """Resample embeddings ``(2 old - 1, C)`` of offsets linearly, for a new length."""
    if len(embedding) == 2 * length - 1:
        return embedding
    return F.interpolate(embedding.T[None], size=2 * length - 1, mode='linear')[0].T


def _between(embedding: Tensor, length: int) -> Tensor:
    """The embedding for every pair of query and key, ``(length, length, C)``."""
    places = torch.arange(length, device=embedding.device)
    offsets = places[:, None] - places[None, :] + length - 1
    return resize_offsets(embedding, length)[offsets]
