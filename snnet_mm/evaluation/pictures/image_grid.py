"""Images in rows and columns: painted ones, and depth maps beside their truth."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .figures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL_WIDTH = 2.8  # inches


@dataclass
class DepthExample:
    """An image with its depths.

    Args:
        image: Of any size ``(h, w, 3)``, uint8, RGB.
        truth: Of shape ``(H, W)``, metres, 0 where there is none.
        predictions: One ``(H, W)`` map in metres per model.
    """

    image: np.ndarray
    truth: np.ndarray
    predictions: Sequence[np.ndarray]


def plot_sheet(
    rows: Sequence[Sequence[np.ndarray]], titles: Sequence[str], path: str | os.PathLike
) -> None:
    """Draw images in rows.

    Args:
        rows: Images ``(H, W, 3)``, uint8, RGB; all of a row have one size.
        titles: One per column.
        path: Picture to write; the ending tells the format.
    """
    figure, grid = _grid([row[0].shape for row in rows], titles)
    for cells, row in zip(grid, rows, strict=True):
        for axes, image in zip(cells, row, strict=True):
            axes.imshow(image)
    save_figure(figure, path)


def plot_depths(
    examples: Sequence[DepthExample], titles: Sequence[str], path: str | os.PathLike
) -> None:
    """Draw one row per example: the image, the truth and every prediction.

    All depths share one scale, up to the greatest truth.

    Args:
        examples: The rows.
        titles: One per prediction.
        path: Picture to write; the ending tells the format.
    """
    from matplotlib import colormaps  # see new_figure

    # Near is red, far is blue.
    colors = colormaps['turbo_r'].with_extremes(bad='gainsboro')
    shapes = [example.truth.shape for example in examples]
    figure, grid = _grid(shapes, ['image', 'truth', *titles])
    farthest = max(example.truth.max() for example in examples)
    for cells, example in zip(grid, examples, strict=True):
        cells[0].imshow(example.image)
        truth = np.ma.masked_equal(example.truth, 0)
        for axes, depth in zip(cells[1:], (truth, *example.predictions), strict=True):
            drawn = axes.imshow(depth, cmap=colors, vmin=0, vmax=farthest)
    figure.colorbar(drawn, ax=grid, label='depth (m)', shrink=0.9, pad=0.01)
    save_figure(figure, path)


def _grid(
    shapes: Sequence[tuple[int, ...]], titles: Sequence[str]
) -> tuple[Figure, np.ndarray]:
    """Make axes without frames, one row for every shape of images."""
    shares = [height / width for height, width, *_ in shapes]
    figure = new_figure(CELL_WIDTH * len(titles), CELL_WIDTH * sum(shares) + 0.4)
    size = len(shares), len(titles)
    grid = figure.subplots(*size, squeeze=False, height_ratios=shares)
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, fontsize='medium')
    for axes in grid.flat:
        axes.set_axis_off()
    return figure, grid
