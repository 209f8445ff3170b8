"""The picture of depth estimation: image, truth and predictions side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .figures import new_figure, save_figure


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


def plot_depths(
    examples: Sequence[DepthExample], titles: Sequence[str], path: str | os.PathLike
) -> None:
    """Draw one row per example: the image, the truth and every prediction.

    All depths share one scale, up to the greatest truth.

    Args:
        examples: What to draw.
        titles: One per prediction.
        path: Picture to write; the ending tells the format.
    """
    from matplotlib import colormaps  # see new_figure

    # Near is red, far is blue.
    colors = colormaps['turbo_r'].with_extremes(bad='gainsboro')
    columns = ('image', 'truth', *titles)
    height, width = examples[0].truth.shape
    side = 2.6
    figure = new_figure(
        side * len(columns) + 0.6, side * height / width * len(examples) + 0.5
    )
    grid = figure.subplots(len(examples), len(columns), squeeze=False)
    farthest = max(example.truth.max() for example in examples)
    for row, example in zip(grid, examples, strict=True):
        row[0].imshow(example.image)
        truth = np.ma.masked_equal(example.truth, 0)
        for axes, depth in zip(row[1:], (truth, *example.predictions), strict=True):
            drawn = axes.imshow(depth, cmap=colors, vmin=0, vmax=farthest)
    for axes, title in zip(grid[0], columns, strict=True):
        axes.set_title(title, fontsize='medium')
    for axes in grid.flat:
        axes.set_axis_off()
    figure.colorbar(drawn, ax=grid, label='depth (m)', shrink=0.9, pad=0.01)
    save_figure(figure, path)
