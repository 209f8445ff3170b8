"""Square windows of tokens, between which attention does not look."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def to_windows(tokens: Tensor, grid: tuple[int, int], size: int) -> Tensor:
    """Cut a grid of tokens into windows.

    The right and lower edge are padded with zeros to whole windows; as in ViTDet these
    zeros are tokens like others, and attention sees them.

    Args:
        tokens: Of shape ``(B, rows * columns, C)``.
        grid: Rows and columns.
        size: Rows, and columns, of a window.

    Returns:
        Of shape ``(B * windows, size * size, C)``, the windows of an image row by row.
    """
    rows, columns = padded_grid(grid, size)
    x = tokens.unflatten(1, grid)
    x = F.pad(x, (0, 0, 0, columns - grid[1], 0, rows - grid[0]))
    x = x.unflatten(2, (-1, size)).unflatten(1, (-1, size))
    # (B, rows of windows, rows, columns of windows, columns, C)
    return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)


def from_windows(windows: Tensor, grid: tuple[int, int], size: int) -> Tensor:
    """Put windows together again, the padding left out; see :func:`to_windows`."""
    rows, columns = padded_grid(grid, size)
    x = windows.unflatten(1, (size, size))
    x = x.unflatten(0, (-1, rows // size, columns // size))
    x = x.transpose(2, 3).flatten(3, 4).flatten(1, 2)
    return x[:, : grid[0], : grid[1]].flatten(1, 2)


def padded_grid(grid: tuple[int, int], size: int) -> tuple[int, int]:
    """Rows and columns of a grid that whole windows cover."""
    return grid[0] + -grid[0] % size, grid[1] + -grid[1] % size
