"""Figures of matplotlib."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from snnet_mm.utils import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches.

    It imports matplotlib, which takes longer than all of this package, and most runs
    draw nothing.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout='constrained')


def save_figure(figure: Figure, path: str | os.PathLike, dpi: int = 130) -> None:
    """Write a figure, whole or not at all; the ending of the path tells the format."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=dpi)
