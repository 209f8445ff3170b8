"""Painted images in rows and columns, in one picture."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from .figures import new_figure, save_figure

CELL_WIDTH = 3.0  # inches


def plot_sheet(
    rows: Sequence[Sequence[np.ndarray]], titles: Sequence[str], path: str | os.PathLike
) -> None:
    """Draw images in rows.

    Args:
        rows: Images ``(H, W, 3)``, uint8, RGB; all of a row have one size.
        titles: One per column.
        path: Picture to write; the ending tells the format.
    """
    shares = [row[0].shape[0] / row[0].shape[1] for row in rows]
    figure = new_figure(CELL_WIDTH * len(titles), CELL_WIDTH * sum(shares) + 0.4)
    grid = figure.subplots(len(rows), len(titles), squeeze=False, height_ratios=shares)
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, fontsize='medium')
    for cells, row in zip(grid, rows, strict=True):
        for axes, image in zip(cells, row, strict=True):
            axes.imshow(image)
            axes.set_axis_off()
    save_figure(figure, path)
