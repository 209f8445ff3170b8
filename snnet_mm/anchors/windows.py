"""Windows of attention on a map of tokens."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .position import Grid


class Windows(NamedTuple):
    """Windows, within which tokens attend to each other.

    A map is padded with zeros to whole windows, at the bottom and at the right, and
    shifted cyclically, up and to the left.

    Attributes:
        size: Rows and columns of a window.
        shift: Rows and columns of the shift.
        pads_last: Whether the map is shifted before it is padded.
    """

    size: Grid
    shift: Grid = (0, 0)
    pads_last: bool = False

    def split(self, tokens: Tensor, grid: Grid) -> Tensor:
        """Cut ``(B, L, C)`` into windows ``(B * windows, rows * columns, C)``."""
        x, (rows, columns) = tokens.unflatten(1, grid), self.size
        x = self._shifted(x, -1) if self.pads_last else x
        x = F.pad(x, (0, 0, 0, -grid[1] % columns, 0, -grid[0] % rows))
        x = x if self.pads_last else self._shifted(x, -1)
        x = x.unflatten(2, (-1, columns)).unflatten(1, (-1, rows))
        # (B, rows of windows, rows, columns of windows, columns, C)
        return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)

    def merge(self, windows: Tensor, grid: Grid) -> Tensor:
        """Merge windows into tokens and remove the padding; the inverse of a split."""
        x, (height, width), (rows, columns) = windows, grid, self.size
        x = x.unflatten(1, self.size)
        x = x.unflatten(0, (-1, -(-height // rows), -(-width // columns)))
        x = x.transpose(2, 3).flatten(3, 4).flatten(1, 2)
        x = x if self.pads_last else self._shifted(x, 1)
        x = x[:, :height, :width]
        x = self._shifted(x, 1) if self.pads_last else x
        return x.flatten(1, 2)

    def apart(self, grid: Grid, like: Tensor) -> Tensor | None:
        """Return -100 for tokens that only the shift brought together, else 0.

        The result has shape ``(windows, rows * columns, rows * columns)``; None without
        a shift.
        """
        if not any(self.shift):
            return None
        lines = []
        for length, side, shift in zip(grid, self.size, self.shift, strict=True):
            length += -length % side
            line = torch.zeros(length, device=like.device, dtype=like.dtype)
            line[length - side : length - shift], line[length - shift :] = 1, 2
            lines.append(line)
        regions = (3 * lines[0][:, None] + lines[1]).flatten()[None, :, None]
        padded = tuple(map(len, lines))
        regions = Windows(self.size).split(regions, padded)
        return -100.0 * (regions != regions.transpose(1, 2)).to(like.dtype)

    def _shifted(self, x: Tensor, times: int) -> Tensor:
        if not any(self.shift):
            return x
        return x.roll([times * n for n in self.shift], (1, 2))
