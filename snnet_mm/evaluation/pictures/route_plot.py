"""The picture of a stitching space: where routes change anchor, and some routes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from snnet_mm.stitching import (
    Position,
    StagedSpace,
    Stitch,
    StitchingSpace,
    middle_stitches,
)

from .figures import FAST, SLOW, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Fast -> slow; of more than four anchors they repeat.
ANCHOR_COLORS = (FAST, SLOW, '#7d4fa8', '#3c9a6b')
UNUSED_COLOR, LINE_COLOR, BACK_COLOR = '#e6e7ea', '#20242b', '#b03a2e'
COLUMNS, BLOCK_HEIGHT, STAGE_GAP = 2, 0.46, 0.025
TITLE = dict(loc='left', fontsize='small', pad=2)

# Left and right of every block, for every anchor; a row goes from 0 to 1.
Edges = list[list[tuple[float, float]]]


def plot_routes(
    space: StitchingSpace,
    path: str | os.PathLike,
    ids: Sequence[int] | None = None,
) -> None:
    """Draw all joints of a space, and below them the routes of some stitches.

    An anchor is a row of blocks, the fastest on top. Rows are equally long, however
    many blocks they have; stages stand below each other. A route runs the coloured
    blocks and crosses a stitching layer at every dot.

    Args:
        space: The space.
        path: Picture to write; the ending tells the format.
        ids: Stitches to draw; by default those of :func:`middle_stitches`.
    """
    stitches = [space[i] for i in (middle_stitches(space) if ids is None else ids)]
    rows, edges = -(-len(stitches) // COLUMNS), block_edges(space)
    figure = new_figure(11, 0.3 + (0.42 + 0.34 * len(edges)) * (rows + 1.5))
    grid = figure.add_gridspec(rows + 1, COLUMNS, height_ratios=[1.5] + [1.0] * rows)
    axes = figure.add_subplot(grid[0, :])
    axes.set_title(f'where the {len(space)} stitches may change anchor', **TITLE)
    _draw_blocks(axes, space, edges, lambda position: True)
    # The last block before and the first after every change of anchor.
    joints = {
        (Position(a.anchor, a.end - 1), Position(b.anchor, b.begin))
        for stitch in space
        for a, b in pairwise(stitch.segments)
    }
    for before, after in sorted(joints):
        _draw_joint(axes, edges, before, after)
    for n, stitch in enumerate(stitches):
        axes = figure.add_subplot(grid[1 + n // COLUMNS, n % COLUMNS])
        kind = '' if stitch.kind == 'anchor' else f'{stitch.kind}:  '
        axes.set_title(f'{stitch.id}   {kind}{space.describe(stitch)}', **TITLE)
        _draw_blocks(axes, space, edges, stitch.runs)
        _draw_route(axes, edges, stitch)
    save_figure(figure, path, dpi=160)


def block_edges(space: StitchingSpace) -> Edges:
    """Place the blocks of every anchor in its row."""
    staged = isinstance(space, StagedSpace)
    stages = space.stage_depths if staged else [(depth,) for depth in space.depths]
    deepest = [max(depths) for depths in zip(*stages, strict=True)]
    room = (1 - STAGE_GAP * (len(deepest) - 1)) / sum(deepest)
    edges = []
    for depths in stages:
        left, row = 0.0, []
        for depth, most in zip(depths, deepest, strict=True):
            sides = np.linspace(left, left + most * room, depth + 1)
            row += pairwise(sides.tolist())
            left += most * room + STAGE_GAP
        edges.append(row)
    return edges


def _draw_blocks(
    axes: Axes, space: StitchingSpace, edges: Edges, used: Callable[[Position], bool]
) -> None:
    for a, row in enumerate(edges):
        color = ANCHOR_COLORS[a % len(ANCHOR_COLORS)]
        for i, (left, right) in enumerate(row):
            fill = color if used(Position(a, i)) else UNUSED_COLOR
            style = dict(color=fill, edgecolor='white')
            axes.barh(-a, right - left, BLOCK_HEIGHT, left, **style)
        axes.text(-0.008, -a, space.anchor_names[a], ha='right', va='center', size=8)
    axes.set_xlim(-0.085, 1.015)
    axes.set_ylim(-len(edges) + 1 - 0.45, 0.45)
    axes.axis('off')


def _draw_joint(axes: Axes, edges: Edges, before: Position, after: Position) -> None:
    """Draw an arrow between rows, to the right of one that leads back."""
    sign = 1 if after.anchor > before.anchor else -1
    half, side = sign * BLOCK_HEIGHT / 2, sign * 0.003
    start = edges[before.anchor][before.block][1] + side, -before.anchor - half
    end = edges[after.anchor][after.block][0] + side, -after.anchor + half
    style = '-|>,head_width=0.13,head_length=0.25'
    color = LINE_COLOR if sign == 1 else BACK_COLOR
    _draw_arrow(axes, start, end, style, color=color, linewidth=0.8)


def _draw_route(axes: Axes, edges: Edges, stitch: Stitch) -> None:
    line = dict(color=LINE_COLOR, linewidth=1.6)
    runs = []
    for s in stitch.segments:
        row = edges[s.anchor]
        runs.append((-s.anchor, row[s.begin][0], row[s.end - 1][1]))
    for n, (y, left, right) in enumerate(runs, 1):
        style = '-|>' if n == len(runs) else '-'
        _draw_arrow(axes, (left, y), (right, y), style, **line)
    for (y0, _, x0), (y1, x1, _) in pairwise(runs):
        axes.plot([x0, x1], [y0, y1], zorder=3, **line)
        dot = dict(color='white', markeredgecolor=LINE_COLOR, ms=6, zorder=4)
        axes.plot((x0 + x1) / 2, (y0 + y1) / 2, 'o', **dot)


def _draw_arrow(axes: Axes, start: tuple, end: tuple, style: str, **line) -> None:
    arrow = dict(arrowstyle=style, shrinkA=0, shrinkB=0, **line)
    axes.annotate('', end, start, arrowprops=arrow)
