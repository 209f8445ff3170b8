"""Position embeddings of plain ViTs: absolute, and relative attention biases."""

import math
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial

import torch
import torch.nn.functional as F
from mmengine.utils import to_2tuple
from torch import Tensor, nn

Grid = tuple[int, int]  # rows and columns of patches


def grid_of(img_size: int | Sequence[int], patch_size: int) -> Grid:
    """Return rows and columns of the patches of an image padded to whole patches."""
    height, width = to_2tuple(img_size)
    return math.ceil(height / patch_size), math.ceil(width / patch_size)


def resize_pos_embed(
    pos_embed: Tensor, old: Grid, new: Grid, num_prefix: int, antialias: bool = False
) -> Tensor:
    """Resample patch entries of a ``(1, num_prefix + rows * columns, C)`` embedding."""
    if old == new:
        return pos_embed
    prefix, patches = pos_embed[:, :num_prefix], pos_embed[:, num_prefix:]
    patches = patches.float().unflatten(1, old).permute(0, 3, 1, 2)
    patches = F.interpolate(patches, size=new, mode='bicubic', antialias=antialias)
    patches = patches.flatten(2).transpose(1, 2).to(pos_embed.dtype)
    return torch.cat([prefix, patches], dim=1)


def add_positions(
    patches: Tensor, pos_embed: Tensor | None, *prefix: Tensor | None
) -> Tensor:
    """Prepend prefix tokens ``(1, n, C)`` to patches ``(B, L, C)``; add positions."""
    tokens = [t.expand(patches.shape[0], -1, -1) for t in prefix if t is not None]
    if pos_embed is None:
        return torch.cat([*tokens, patches], dim=1)
    if pos_embed.shape[1] == patches.shape[1]:
        return torch.cat([*tokens, patches + pos_embed], dim=1)
    return torch.cat([*tokens, patches], dim=1) + pos_embed


@lru_cache(maxsize=8)
def relative_position_index(
    grid: Grid, num_prefix: int, device: torch.device | str = 'cpu'
) -> Tensor:
    """Return the bias table's row for every pair of query and key, ``(L, L)``.

    The table contains ``(2h-1)(2w-1)`` offsets between patches and then, if there are
    prefix tokens, three rows: prefix to any, patch to prefix, prefix to prefix.
    """
    h, w = grid
    # The cached tensor must be valid in every mode, whichever mode requests it first.
    with torch.inference_mode(False):
        places = torch.arange(h * w, device=device)
        rows, columns = places // w, places % w
        index = (rows[:, None] - rows + h - 1) * (2 * w - 1)
        index += columns[:, None] - columns + w - 1
        num_offsets = (2 * h - 1) * (2 * w - 1)
        index = F.pad(index, (num_prefix, 0, num_prefix, 0), value=num_offsets)
        index[num_prefix:, :num_prefix] += 1
        index[:num_prefix, :num_prefix] += 2
    return index


def resize_bias_table(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Resample a table ``((2h-1)(2w-1) + others, heads)`` for another grid (h, w)."""
    if old == new:
        return table
    old, new = [(2 * h - 1, 2 * w - 1) for h, w in (old, new)]
    num_offsets = old[0] * old[1]
    offsets = table[:num_offsets].T.unflatten(1, old)[None]
    offsets = F.interpolate(offsets, size=new, mode='bicubic')[0]
    return torch.cat([offsets.flatten(1).T, table[num_offsets:]])


def gather_bias(table: Tensor, old: Grid, new: Grid, num_prefix: int) -> Tensor:
    """Return the bias ``(1, heads, L, L)`` of all pairs of tokens on a new grid."""
    index_of = relative_position_index
    if torch.compiler.is_compiling():  # traced tensors must not be cached
        index_of = index_of.__wrapped__
    index = index_of(new, num_prefix, table.device)
    # Heads first, so that the result has the layout of attention without a copy.
    by_head = resize_bias_table(table, old, new).T
    return by_head.index_select(1, index.flatten()).view(1, -1, *index.shape)


class TensorCache(nn.Module):
    """A cache of tensors computed from weights, invalidated by new weights or keys.

    Cached tensors have no gradient. Changes through ``.data`` are not detected, but
    ``train`` and ``eval`` clear the cache.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[Hashable, tuple[tuple, Tensor]] = {}

    def get(
        self,
        slot: Hashable,
        key: tuple,
        weights: Sequence[Tensor],
        make: Callable[[], Tensor],
    ) -> Tensor:
        """Return a slot's tensor; call ``make`` again if weights or key changed."""
        # Dynamo sees neither versions nor addresses: graphs compute it from weights.
        if torch.compiler.is_compiling() or (weights and torch.is_grad_enabled()):
            return make()
        key = *key, torch.is_inference_mode_enabled()
        for weight in weights:
            version = None if weight.is_inference() else weight._version
            key = *key, weight.data_ptr(), version, weight.device, weight.dtype
        if slot not in self._kept or self._kept[slot][0] != key:
            self._kept[slot] = key, make()
        return self._kept[slot][1]

    def train(self, mode: bool = True) -> 'TensorCache':
        self._kept.clear()
        return super().train(mode)


class RelativePositionBias(nn.Module):
    """BEiT's learned attention bias, cached per grid in eval mode without gradients."""

    def __init__(self, grid: Grid, num_heads: int, num_prefix: int) -> None:
        super().__init__()
        self.grid, self.num_prefix = grid, num_prefix
        num_rows = (2 * grid[0] - 1) * (2 * grid[1] - 1) + (3 if num_prefix else 0)
        # Zeros leave pretrained weights without tables as they are.
        self.table = nn.Parameter(torch.zeros(num_rows, num_heads))
        self._kept = TensorCache()

    def forward(self, grid: Grid, queries: Tensor | None = None) -> Tensor:
        """Return the bias ``(1, heads, L, L)`` for a grid; queries are ignored."""
        make = partial(gather_bias, self.table, self.grid, grid, self.num_prefix)
        return make() if self.training else self._kept.get(0, grid, [self.table], make)

    def fix_grid(self, grid: Grid) -> None:
        """Permanently resample the table to a grid."""
        self.table.data = resize_bias_table(self.table.data, self.grid, grid)
        self.grid = grid


class DecomposedRelPosBias(nn.Module):
    """The attention bias of MViTv2 and ViTDet, which depends on the query.

    It is the sum of two dot products of the query: with an embedding of the row offset
    to the key, and with an embedding of the column offset.
    """

    def __init__(self, grid: Grid, head_dim: int) -> None:
        super().__init__()
        self.rel_pos_h = nn.Parameter(torch.zeros(2 * grid[0] - 1, head_dim))
        self.rel_pos_w = nn.Parameter(torch.zeros(2 * grid[1] - 1, head_dim))

    def forward(self, grid: Grid, queries: Tensor) -> Tensor:
        """Return the bias ``(B, heads, L, L)`` for unscaled queries of the patches."""
        queries = queries.unflatten(2, grid)
        rows = _between(self.rel_pos_h, grid[0])
        columns = _between(self.rel_pos_w, grid[1])
        by_row = torch.einsum('bnhwd,hkd->bnhwk', queries, rows)
        by_column = torch.einsum('bnhwd,wkd->bnhwk', queries, columns)
        bias = by_row[..., :, None] + by_column[..., None, :]
        return bias.flatten(4).flatten(2, 3)

    def fix_grid(self, grid: Grid) -> None:
        """Permanently resample both embeddings to a grid."""
        self.rel_pos_h.data = resize_offsets(self.rel_pos_h.data, grid[0])
        self.rel_pos_w.data = resize_offsets(self.rel_pos_w.data, grid[1])


def resize_offsets(embedding: Tensor, length: int) -> Tensor:
    """Linearly resample offset embeddings ``(2 old - 1, C)`` to a new length."""
    if len(embedding) == 2 * length - 1:
        return embedding
    return F.interpolate(embedding.T[None], size=2 * length - 1, mode='linear')[0].T


def _between(embedding: Tensor, length: int) -> Tensor:
    """Return embeddings ``(length, length, C)`` for all pairs of query and key."""
    places = torch.arange(length, device=embedding.device)
    offsets = places[:, None] - places[None, :] + length - 1
    return resize_offsets(embedding, length)[offsets]
