"""Matplotlib figures and grids of images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from snnet_mm.utils import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL_WIDTH, MAX_RATIO = 2.8, 4  # inches; height of a cell over its width
FAST, SLOW = '#e8a22f', '#3a76cc'  # colours of anchors, also in tools/web/index.html


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; width and height are in inches."""
    # Importing matplotlib takes longer than this package; most runs draw nothing.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout='constrained')


def save_figure(figure: Figure, path: str | os.PathLike, dpi: int = 130) -> None:
    """Write a figure atomically; the suffix of the path determines the format."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=dpi)


def as_picture(image: np.ndarray) -> np.ndarray:
    """Return an image ``(H, W, C)`` as a picture ``(H, W, 3)`` of uint8.

    Of more channels the first three are kept, of one or two the first is repeated.
    Values above 255 or below 0, and other than integers, are scaled to the range.
    """
    picture = image[..., [0, 1, 2] if image.shape[2] > 2 else [0, 0, 0]]
    if picture.dtype != np.uint8:
        low, high = float(picture.min()), float(picture.max())
        if low < 0 or not 1 < high <= 255:
            picture = (picture - low) * (255 / (high - low or 1))
        picture = picture.round()
    return np.ascontiguousarray(picture, np.uint8)


def plot_images(
    rows: Sequence[Sequence[np.ndarray]],
    titles: Sequence[str],
    path: str | os.PathLike,
    legend: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """Draw a grid of images.

    Args:
        rows: Images ``(H, W, 3)``, uint8, RGB. The first image of a row sets the
            aspect ratio of the row.
        titles: One title per column.
        path: Output file; the suffix determines the format.
        legend: RGB colours of classes by name. Default: no legend.
    """
    from matplotlib.patches import Patch  # see new_figure

    # Very tall images are shrunk: a figure has at most 2 ** 16 pixels a side.
    shares = [min(row[0].shape[0] / row[0].shape[1], MAX_RATIO) for row in rows]
    figure = new_figure(CELL_WIDTH * len(titles), CELL_WIDTH * sum(shares) + 0.4)
    size = len(rows), len(titles)
    grid = figure.subplots(*size, squeeze=False, height_ratios=shares)
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, fontsize='medium')
    for axes, image in zip(grid.flat, (i for row in rows for i in row), strict=True):
        axes.set_axis_off()
        axes.imshow(image)
    if legend:
        shown = [Patch(color=np.divide(c, 255), label=n) for n, c in legend.items()]
        columns = max(1, int(figure.get_figwidth() / 1.4))
        figure.legend(handles=shown, loc='outside lower center', ncols=columns)
    save_figure(figure, path)
