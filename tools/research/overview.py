"""Draw both ways to several budgets beside a front, the first picture of the README."""

from pathlib import Path

import matplotlib

matplotlib.use('Agg')
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch  # noqa: E402

from snnet_mm.stitching import StitchTable  # noqa: E402

FAST, SLOW, NARROW, SKIPPED, MAP = '#7fb3d5', '#2e6da4', '#9fc5e8', '#dddddd', '#e08e45'


def plot_overview(front: StitchTable, stitch_id: int, out: Path) -> None:
    """Draw two stitched anchors, a chain of a ViT-S, and its front in milliseconds."""
    figure = plt.figure(figsize=(11, 3.6), constrained_layout=True)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.25, 1))
    _draw_pair(figure.add_subplot(grid[0, 0]))
    _draw_chain(figure.add_subplot(grid[1, 0]), front, stitch_id)
    _draw_fronts(figure.add_subplot(grid[:, 1]), front)
    figure.savefig(out, dpi=110)
    plt.close(figure)


def _box(axis: Axes, x: float, y: float, height: float, color: str, **kwargs) -> None:
    style = dict(boxstyle='round,pad=0.02', linewidth=0, **kwargs)
    axis.add_patch(FancyBboxPatch((x + 0.1, y), 0.8, height, color=color, **style))


def _draw_pair(axis: Axes) -> None:
    """Draw a route from the fast anchor to the slow one and back."""
    axis.set_title('Two pretrained networks, joined by stitching layers', fontsize=10)
    route = [(0, 0), (1, 0), (2, 0), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1), (11, 1)]
    for i in range(12):
        _box(axis, i, 1.2, 0.7, SLOW, alpha=1 if (i, 1) in route else 0.25)
        if i < 6:
            _box(axis, 2 * i + 0.5, 0, 0.5, FAST, alpha=1 if (i, 0) in route else 0.3)
    arrow = dict(arrowstyle='-|>', mutation_scale=14, color=MAP, linewidth=2)
    axis.add_patch(FancyArrowPatch((5.6, 0.5), (6.3, 1.2), **arrow))
    axis.text(6.2, 0.62, 'stitching layer', color=MAP, fontsize=9)
    axis.text(-0.2, 0.25, 'fast', ha='right', va='center', fontsize=9)
    axis.text(-0.2, 1.55, 'slow', ha='right', va='center', fontsize=9)
    axis.set(xlim=(-1.3, 12.1), ylim=(-0.1, 2.05))
    axis.axis('off')


def _draw_chain(axis: Axes, front: StitchTable, stitch_id: int) -> None:
    """Draw the branches of a chain as high as they are wide."""
    row = next(row for row in front.rows if row.id == stitch_id)
    share = row.flops / max(row.flops for row in front.rows)
    title = f'One trained network, branches narrowed or skipped: {share:.0%} of FLOPs'
    axis.set_title(title, fontsize=10)
    for i, part in enumerate(row.route.split()):
        heads, neurons = map(int, part.partition(':')[2].split('/'))
        for y, width, whole in ((0, heads, 6), (1.05, neurons, 1536)):
            _box(axis, i, y, 0.85, SKIPPED)
            if width:
                color = SLOW if width == whole else NARROW
                _box(axis, i, y, 0.85 * width / whole, color)
    axis.text(-0.2, 0.42, 'heads', ha='right', va='center', fontsize=9)
    axis.text(-0.2, 1.47, 'neurons', ha='right', va='center', fontsize=9)
    axis.set(xlim=(-1.3, 12.1), ylim=(-0.1, 2.05))
    axis.axis('off')


def _draw_fronts(axis: Axes, front: StitchTable) -> None:
    """Draw mIoU against milliseconds, a line of each precision."""
    for precision, color in (('fp32', SLOW), ('int8', FAST)):
        rows = [row for row in front.rows if row.precision == precision]
        rows.sort(key=lambda row: row.latency)
        x, y = [r.latency for r in rows], [r.metrics['mIoU'] for r in rows]
        axis.plot(x, y, marker='o', lw=2.5, color=color, label=f'{precision}, budgets')
        style = dict(marker='*', markersize=16, color=color, ls='')
        axis.plot(x[-1], y[-1], label=f'{precision}, full network', **style)
    axis.set(xlabel='ms per image (one CPU thread)', ylabel='mIoU, CamVid test images')
    axis.legend(loc='lower right', fontsize=9)
    axis.grid(alpha=0.3)
