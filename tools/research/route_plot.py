"""Figure of a two-way space: where routes may change anchor, and sample routes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from snnet_mm.evaluation.pictures.figures import FAST, SLOW, new_figure, save_figure
from snnet_mm.stitching import Stitch, TwoWaySpace, middle_stitches

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNUSED, LINE, BACK = '#e6e7ea', '#20242b', '#b03a2e'
COLUMNS, HEIGHT = 2, 0.46
TITLE = dict(loc='left', fontsize='small', pad=2)


def plot_routes(space: TwoWaySpace, path: Path) -> None:
    """Draw all joints of a space and, below them, a route of every kind.

    Each anchor is a row of blocks; both rows have the same length. A route runs the
    coloured blocks, and every dot is a stitching layer.
    """
    stitches = [space[i] for i in middle_stitches(space)]
    rows = -(-len(stitches) // COLUMNS)
    figure = new_figure(11, 0.3 + 1.1 * (rows + 1.5))
    grid = figure.add_gridspec(rows + 1, COLUMNS, height_ratios=[1.5] + [1.0] * rows)
    axes = figure.add_subplot(grid[0, :])
    axes.set_title(f'where the {len(space)} stitches may change anchor', **TITLE)
    _draw_blocks(axes, space)
    joints = {
        (a.anchor, a.end / space.depths[a.anchor], b.begin / space.depths[b.anchor])
        for stitch in space
        for a, b in pairwise(stitch.segments)
    }
    for anchor, end, begin in sorted(joints):
        # Shifts keep forward arrows apart from backward ones.
        sign, color = (-1, BACK) if anchor else (1, LINE)
        edges = -anchor - sign * HEIGHT / 2, anchor - 1 + sign * HEIGHT / 2
        start, stop = zip((end, begin), edges, strict=True)
        style = '-|>,head_width=0.13,head_length=0.25'
        shift = sign * 0.003
        points = (start[0] + shift, start[1]), (stop[0] + shift, stop[1])
        _draw_arrow(axes, *points, style, color=color, linewidth=0.8)
    for n, stitch in enumerate(stitches):
        axes = figure.add_subplot(grid[1 + n // COLUMNS, n % COLUMNS])
        kind = '' if stitch.kind == 'anchor' else f'{stitch.kind}:  '
        axes.set_title(f'{stitch.id}   {kind}{space.describe(stitch)}', **TITLE)
        _draw_blocks(axes, space, stitch)
        _draw_route(axes, space, stitch)
    save_figure(figure, path, dpi=160)


def _draw_blocks(axes: Axes, space: TwoWaySpace, route: Stitch | None = None) -> None:
    for anchor, depth in enumerate(space.depths):
        for i in range(depth):
            used = route is None or any(
                s.anchor == anchor and s.begin <= i < s.end for s in route.segments
            )
            color = (FAST, SLOW)[anchor] if used else UNUSED
            style = dict(color=color, edgecolor='white')
            axes.barh(-anchor, 1 / depth, HEIGHT, i / depth, **style)
        name = space.anchor_names[anchor]
        axes.text(-0.008, -anchor, name, ha='right', va='center', size=8)
    axes.set_xlim(-0.085, 1.015)
    axes.set_ylim(-1.45, 0.45)
    axes.axis('off')


def _draw_route(axes: Axes, space: TwoWaySpace, stitch: Stitch) -> None:
    line = dict(color=LINE, linewidth=1.6)
    depths = [space.depths[s.anchor] for s in stitch.segments]
    runs = [
        (-s.anchor, s.begin / depth, s.end / depth)
        for s, depth in zip(stitch.segments, depths, strict=True)
    ]
    for n, (y, left, right) in enumerate(runs, 1):
        style = '-|>' if n == len(runs) else '-'
        _draw_arrow(axes, (left, y), (right, y), style, **line)
    for (y0, _, x0), (y1, x1, _) in pairwise(runs):
        axes.plot([x0, x1], [y0, y1], zorder=3, **line)
        dot = dict(color='white', markeredgecolor=LINE, ms=6, zorder=4)
        axes.plot((x0 + x1) / 2, (y0 + y1) / 2, 'o', **dot)


def _draw_arrow(axes: Axes, start: tuple, end: tuple, style: str, **line) -> None:
    arrow = dict(arrowstyle=style, shrinkA=0, shrinkB=0, **line)
    axes.annotate('', end, start, arrowprops=arrow)
