"""The picture of a stitching space: where routes change anchor, and some routes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from snnet_mm.stitching import (
    Position,
    Segment,
    StagedSpace,
    Stitch,
    StitchingSpace,
    middle_stitches,
)

from .figures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Fast -> slow; of more than four anchors they repeat.
ANCHOR_COLORS = ('#e8a22f', '#3a76cc', '#7d4fa8', '#3c9a6b')
UNUSED_COLOR, LINE_COLOR = '#e6e7ea', '#20242b'
COLUMNS, BLOCK_HEIGHT, STAGE_GAP = 2, 0.46, 0.025
TITLE = dict(loc='left', fontsize='small', pad=2)

Edges = tuple[float, float]  # left and right of a block; a row goes from 0 to 1


def plot_routes(
    space: StitchingSpace,
    path: str | os.PathLike,
    ids: Sequence[int] | None = None,
    title: str | None = None,
) -> None:
    """Draw all joints of a space, and below them the routes of some stitches.

    An anchor is a row of blocks, the fastest on top. Rows are equally long, however
    many blocks they have; stages stand below each other. A route runs the coloured
    blocks and crosses a stitching layer at every dot.

    Args:
        space: The space.
        path: Picture to write; the ending tells the format.
        ids: Stitches to draw; by default those of :func:`middle_stitches`.
        title: Heading.

    Raises:
        ValueError: If an id is not in the space.
    """
    stitches = [space[i] for i in (middle_stitches(space) if ids is None else ids)]
    rows, edges = -(-len(stitches) // COLUMNS), block_edges(space)
    unit = 0.42 + 0.34 * len(edges)
    figure = new_figure(11, 0.3 + unit * (rows + 1.5))
    ratios = [1.5] + [1.0] * rows
    grid = figure.add_gridspec(rows + 1, COLUMNS, height_ratios=ratios)
    axes = figure.add_subplot(grid[0, :])
    axes.set_title(f'where the {len(space)} stitches may change anchor', **TITLE)
    _draw_blocks(axes, space, edges, lambda position: True)
    for before, behind in sorted(_joints(space)):
        _draw_joint(axes, edges, before, behind)
    for n, stitch in enumerate(stitches):
        axes = figure.add_subplot(grid[1 + n // COLUMNS, n % COLUMNS])
        name = '' if stitch.kind == 'anchor' else f'{stitch.kind}:  '
        axes.set_title(f'{stitch.id}   {name}{space.describe(stitch)}', **TITLE)
        _draw_blocks(axes, space, edges, stitch.runs)
        _draw_route(axes, edges, stitch)
    if title:
        figure.suptitle(title)
    save_figure(figure, path, dpi=160)


def block_edges(space: StitchingSpace) -> list[list[Edges]]:
    """Where each block of each anchor stands in its row."""
    staged = isinstance(space, StagedSpace)
    stages = space.stage_depths if staged else [(depth,) for depth in space.depths]
    deepest = [max(depths) for depths in zip(*stages, strict=True)]
    room = (1 - STAGE_GAP * (len(deepest) - 1)) / sum(deepest)
    edges = []
    for depths in stages:
        left, row = 0.0, []
        for depth, most in zip(depths, deepest, strict=True):
            width = most * room / depth
            row += [(left + i * width, left + (i + 1) * width) for i in range(depth)]
            left += most * room + STAGE_GAP
        edges.append(row)
    return edges


def _joints(space: StitchingSpace) -> set[tuple[Position, Position]]:
    """The last block before and the first behind every change of anchor."""
    return {
        (Position(a.anchor, a.end - 1), Position(b.anchor, b.begin))
        for stitch in space
        for a, b in pairwise(stitch.segments)
    }


def _draw_blocks(
    axes: Axes,
    space: StitchingSpace,
    edges: Sequence[Sequence[Edges]],
    used: Callable[[Position], bool],
) -> None:
    from matplotlib.patches import FancyBboxPatch  # see new_figure

    for a, row in enumerate(edges):
        for i, (left, right) in enumerate(row):
            gap = min(0.12 * (right - left), 0.004)
            color = _color(a) if used(Position(a, i)) else UNUSED_COLOR
            box = FancyBboxPatch(
                (left + gap, -a - BLOCK_HEIGHT / 2),
                right - left - 2 * gap,
                BLOCK_HEIGHT,
                boxstyle='round,pad=0,rounding_size=0.004',
                mutation_aspect=20,
                facecolor=color,
                edgecolor='none',
            )
            axes.add_patch(box)
        axes.text(-0.008, -a, space.anchor_names[a], ha='right', va='center', size=8)
    axes.set_xlim(-0.085, 1.015)
    axes.set_ylim(-len(edges) + 1 - 0.45, 0.45)
    axes.axis('off')


def _draw_joint(
    axes: Axes, edges: Sequence[Sequence[Edges]], before: Position, behind: Position
) -> None:
    """An arrow from one row to another, to the right of one that leads back."""
    down = behind.anchor > before.anchor
    side = 0.003 if down else -0.003
    sign = 1 if down else -1
    start = edges[before.anchor][before.block][1] + side
    end = edges[behind.anchor][behind.block][0] + side
    axes.annotate(
        '',
        (end, -behind.anchor + sign * BLOCK_HEIGHT / 2),
        (start, -before.anchor - sign * BLOCK_HEIGHT / 2),
        arrowprops=dict(
            arrowstyle='-|>,head_width=0.13,head_length=0.25',
            color=LINE_COLOR if down else '#b03a2e',
            linewidth=0.8,
            shrinkA=0,
            shrinkB=0,
        ),
    )


def _draw_route(axes: Axes, edges: Sequence[Sequence[Edges]], stitch: Stitch) -> None:
    runs = [_span(edges, segment) for segment in stitch.segments]
    for anchor, left, right in runs:
        last = anchor == runs[-1][0] and right == runs[-1][2]
        axes.annotate(
            '',
            (right, -anchor),
            (left, -anchor),
            arrowprops=dict(
                arrowstyle='-|>' if last else '-',
                color=LINE_COLOR,
                linewidth=1.6,
                shrinkA=0,
                shrinkB=0,
            ),
        )
    for (a, _, right), (b, left, _) in pairwise(runs):
        line = dict(color=LINE_COLOR, linewidth=1.6, zorder=3)
        axes.plot([right, left], [-a, -b], **line)
        middle = (right + left) / 2, -(a + b) / 2
        axes.plot(
            *middle, 'o', color='white', markeredgecolor=LINE_COLOR, ms=6, zorder=4
        )


def _span(
    edges: Sequence[Sequence[Edges]], segment: Segment
) -> tuple[int, float, float]:
    row = edges[segment.anchor]
    return segment.anchor, row[segment.begin][0], row[segment.end - 1][1]


def _color(anchor: int) -> str:
    return ANCHOR_COLORS[anchor % len(ANCHOR_COLORS)]
