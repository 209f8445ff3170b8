"""Square windows of tokens, between which attention does not look."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def to_windows(tokens: Tensor, grid: tuple[int, int], size: int) -> Tensor:
    """Cut tokens ``(B, rows * columns, C)`` into windows, row by row.

    The right and lower edge are padded with zeros to whole windows; as in ViTDet these
    zeros are tokens like others, and attention sees them.

    Returns:
        Of shape ``(B * windows, size * size, C)``.
    """
    x = tokens.unflatten(1, grid)
    x = F.pad(x, (0, 0, 0, -grid[1] % size, 0, -grid[0] % size))
    x = x.unflatten(2, (-1, size)).unflatten(1, (-1, size))
    # (B, rows of windows, rows, columns of windows, columns, C)
    return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)


def from_windows(windows: Tensor, grid: tuple[int, int], size: int) -> Tensor:
    """Put windows together again, the padding left out; see :func:`to_windows`."""
    x = windows.unflatten(1, (size, size))
    x = x.unflatten(0, (-1, -(-grid[0] // size), -(-grid[1] // size)))
    x = x.transpose(2, 3).flatten(3, 4).flatten(1, 2)
    return x[:, : grid[0], : grid[1]].flatten(1, 2)
