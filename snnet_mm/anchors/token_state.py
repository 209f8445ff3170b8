"""The state between two blocks: tokens and the grid that they lie on."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class TokenState(NamedTuple):
    """Activations between two blocks, of whatever kind the network is.

    A map ``(B, C, H, W)`` has them as ``map.flatten(2).transpose(1, 2)``, which copies
    nothing.

    Args:
        tokens: Of shape ``(B, L, C)``, prefix tokens first, then the patches or places
            of the map, row by row.
        grid: Rows and columns of patches.
    """

    tokens: Tensor
    grid: tuple[int, int]
