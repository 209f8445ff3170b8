"""Redraw the figures of the docs from results in this repository: ``make pictures``.

Photos need trained weights and are not redrawn.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from snnet_mm.stitching import Stitch, StitchTable, TwoWaySpace, middle_stitches
from snnet_mm.utils import ToolParser, run_command

ROOT = Path(__file__).resolve().parents[2]
ADE20K = ROOT / 'configs/setr/published/setr-naive_snnetv2-deit3-s-l_ade20k.json'
# Runs with milliseconds and metrics of graphs in float32 and int8, by label.
BUNDLES = {
    'branches': 'bundle_600_seed0_test',
    'whole blocks': 'bundle_blocks_600_seed0_test',
    'smaller images': 'bundle_sizes_600_seed0_test',
}
# Run of untrained.csv, and its seed or the mean of all.
PLOTTED = 'camvid_600', 'mean'
PRECISIONS = dict(fp32='o-', int8='s--')
RESULTS = ROOT / 'configs' / 'dinov2' / 'results'
LOADS = RESULTS / 'serving_fp32.json'
# A run at several sizes of images, and milliseconds of its graphs.
FRONT, TIMES = 'sizes_4000_seed0_test', RESULTS / 'graphs_350x476.json'
# Of anchors, as in pareto plots.
FAST, SLOW = '#e8a22f', '#3a76cc'
NARROW, SKIPPED, LINE, BACK = '#9fc5e8', '#e6e7ea', '#20242b', '#b03a2e'
HEIGHT = 0.46  # of a row of blocks


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout='constrained')


def plot_loads() -> Figure:
    """Plot the effective metric of each policy over the request rate."""
    loads = json.loads(LOADS.read_text())['loads']
    cases = sorted({(row['deadline'], row['bursts']) for row in loads})
    figure = new_figure(3 * len(cases), 3)
    axes = figure.subplots(1, len(cases), sharey=True)
    for axis, (deadline, bursts) in zip(axes, cases, strict=True):
        for name in dict.fromkeys(row['policy'] for row in loads):
            about = dict(policy=name, deadline=deadline, bursts=bursts)
            rows = [row for row in loads if about.items() <= row.items()]
            rates, values = ([r[key] for r in rows] for key in ('rate', 'effective'))
            width = 3 if name == 'rule' else 1
            axis.plot(rates, values, marker='o', label=name, lw=width)
        axis.set_title(f'{deadline:g} ms' + ', bursts' * bursts)
        axis.set_xlabel('requests per second')
    axes[0].set_ylabel('mIoU, a miss counts 0')
    axes[0].legend()
    return figure


def plot_ways(bundles: dict[str, StitchTable]) -> Figure:
    """Plot metrics over milliseconds of several ways to smaller graphs."""
    figure = new_figure(8, 4.5)
    axis = figure.add_subplot()
    for (label, bundle), color in zip(bundles.items(), (SLOW, FAST, BACK), strict=True):
        draw_front(axis, bundle, label, [color] * 2)
    return figure


def plot_untrained(lines: Sequence[dict[str, str]]) -> Figure:
    """Plot the share of the metric over that of the FLOPs, a line of each method."""
    whole = next(float(line['gflops']) for line in lines if line['kind'] == 'network')
    kinds = dict.fromkeys(line['kind'] for line in lines if line['budget'] != '100%')
    kinds.pop('trained', None)  # a single point
    figure = new_figure(8, 5)
    axis = figure.add_subplot()
    for number, kind in enumerate(kinds):
        rows = [line for line in lines if line['kind'] in ('network', kind)]
        x = [100 * float(line['gflops']) / whole for line in rows]
        y = [float(line['share']) for line in rows]
        ours = kind.startswith('ours')
        style = dict(lw=2.5, color=SLOW) if ours else dict(lw=1)
        marks = '-' if kind == 'ours' else ('--', '-.', ':')[number % 3]
        axis.plot(x, y, marks, marker='o', ms=4, label=kind, **style)
    axis.set(xlabel='% of the FLOPs', ylabel='% of the metric', ylim=(0, 104))
    axis.invert_xaxis()
    axis.legend(fontsize=8, loc='lower left')
    axis.grid(alpha=0.3)
    return figure


def draw_front(
    axis: Axes, bundle: StitchTable, label: str, colors: Sequence[str]
) -> None:
    """Draw metrics over milliseconds, a line of each precision."""
    for (precision, style), color in zip(PRECISIONS.items(), colors, strict=True):
        rows = [row for row in bundle.rows if row.precision == precision]
        rows.sort(key=lambda row: row.latency)
        x, y = zip(*((row.latency, bundle.score(row)) for row in rows), strict=True)
        axis.plot(x, y, style, color=color, label=f'{label}, {precision}')
    axis.set(xlabel='ms per image (one CPU thread)', ylabel='mIoU, CamVid test images')
    axis.legend(loc='lower right', fontsize=9)
    axis.grid(alpha=0.3)


def plot_overview(
    front: StitchTable, lines: Sequence[dict[str, str]], space: TwoWaySpace
) -> Figure:
    """Draw both ways to several budgets beside the fronts of three ways."""
    figure = new_figure(11, 3.6)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.25, 1))
    axis = figure.add_subplot(grid[0, 0])
    draw_route(axis, space, space[4])
    axis.set_title('Two pretrained networks, joined by stitching layers', fontsize=10)
    draw_chain(figure.add_subplot(grid[1, 0]), front, stitch_id=2)
    axis = figure.add_subplot(grid[:, 1])
    scores = {(x['size'], x['budget']): float(x['score']) for x in lines}
    times = json.loads(TIMES.read_text())['rows']
    points = {(t['size'], t['budget']): t['fp32'] for t in times}
    whole = max(points, key=points.get)
    ways = {
        'both': [k for k in points if '100%' not in k and k[0] != whole[0]],
        'narrower branches': [k for k in points if k[0] == whole[0]],
        'smaller images': [k for k in points if '100%' in k],
    }
    for (label, keys), color in zip(ways.items(), (SLOW, FAST, BACK), strict=True):
        keys.sort(key=points.get)
        x, y = [points[k] for k in keys], [scores[k] for k in keys]
        axis.plot(x, y, 'o-', color=color, label=label, lw=2)
    axis.set(xlabel='ms per image (one CPU thread)', ylabel='mIoU, CamVid test images')
    axis.legend(title='one network of 67.6 mIoU', loc='lower right', fontsize=9)
    axis.grid(alpha=0.3)
    return figure


def draw_chain(axis: Axes, front: StitchTable, stitch_id: int) -> None:
    """Draw the branches of a chain of a ViT-S as high as they are wide."""
    row = next(row for row in front.rows if row.id == stitch_id)
    share = row.flops / max(row.flops for row in front.rows)
    title = f'One trained network, branches narrowed or skipped: {share:.0%} of FLOPs'
    axis.set_title(title, fontsize=10)
    parts = [part.partition(':')[2].split('/') for part in row.route.split()]
    heads, neurons = zip(*(map(int, part) for part in parts), strict=True)
    for name, widths, whole, y in (('heads', heads, 6, 0), ('MLP', neurons, 1536, 1.1)):
        shares = [width / whole for width in widths]
        colors = [SLOW if share == 1 else NARROW for share in shares]
        axis.bar(range(len(shares)), 1, 0.9, bottom=y, color=SKIPPED)
        axis.bar(range(len(shares)), shares, 0.9, bottom=y, color=colors)
        axis.text(-0.7, y + 0.5, name, ha='right', va='center', size=8)
    axis.set_xlim(-1.5, len(heads) - 0.3)
    axis.axis('off')


def plot_routes(space: TwoWaySpace, columns: int = 2) -> Figure:
    """Draw all joints of a space and, below them, a route of every kind."""
    stitches = [space[i] for i in middle_stitches(space)]
    rows = -(-len(stitches) // columns)
    figure = new_figure(11, 0.3 + 1.1 * (rows + 1.5))
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[1.5] + [1.0] * rows)
    title = dict(loc='left', fontsize='small', pad=2)
    axis = figure.add_subplot(grid[0, :])
    axis.set_title(f'where the {len(space)} stitches may change anchor', **title)
    draw_blocks(axis, space)
    joints = {
        (a.anchor, a.end / space.depths[a.anchor], b.begin / space.depths[b.anchor])
        for stitch in space
        for a, b in pairwise(stitch.segments)
    }
    for anchor, end, begin in sorted(joints):
        # Shifts keep forward arrows apart from backward ones.
        sign, color = (-1, BACK) if anchor else (1, LINE)
        start = end + 0.003 * sign, -anchor - sign * HEIGHT / 2
        stop = begin + 0.003 * sign, anchor - 1 + sign * HEIGHT / 2
        draw_arrow(axis, start, stop, '-|>', color=color, linewidth=0.8)
    for n, stitch in enumerate(stitches):
        axis = figure.add_subplot(grid[1 + n // columns, n % columns])
        kind = '' if stitch.kind == 'anchor' else f'{stitch.kind}:  '
        axis.set_title(f'{stitch.id}   {kind}{space.describe(stitch)}', **title)
        draw_route(axis, space, stitch)
    return figure


def draw_blocks(axis: Axes, space: TwoWaySpace, route: Stitch | None = None) -> None:
    """Draw a row of blocks of each anchor, those of a route coloured."""
    for anchor, depth in enumerate(space.depths):
        for i in range(depth):
            used = route is None or any(
                s.anchor == anchor and s.begin <= i < s.end for s in route.segments
            )
            color = (FAST, SLOW)[anchor] if used else SKIPPED
            style = dict(color=color, edgecolor='white')
            axis.barh(-anchor, 1 / depth, HEIGHT, i / depth, **style)
        name = space.anchor_names[anchor]
        axis.text(-0.008, -anchor, name, ha='right', va='center', size=8)
    axis.set_xlim(-0.085, 1.015)
    axis.set_ylim(-1.45, 0.45)
    axis.axis('off')


def draw_route(axis: Axes, space: TwoWaySpace, stitch: Stitch) -> None:
    """Draw a route over the blocks; every dot is a stitching layer."""
    draw_blocks(axis, space, stitch)
    line = dict(color=LINE, linewidth=1.6)
    depths = [space.depths[s.anchor] for s in stitch.segments]
    runs = [
        (-s.anchor, s.begin / depth, s.end / depth)
        for s, depth in zip(stitch.segments, depths, strict=True)
    ]
    for n, (y, left, right) in enumerate(runs, 1):
        style = '-|>' if n == len(runs) else '-'
        draw_arrow(axis, (left, y), (right, y), style, **line)
    for (y0, _, x0), (y1, x1, _) in pairwise(runs):
        axis.plot([x0, x1], [y0, y1], zorder=3, **line)
        dot = dict(color='white', markeredgecolor=LINE, ms=6, zorder=4)
        axis.plot((x0 + x1) / 2, (y0 + y1) / 2, 'o', **dot)


def draw_arrow(axis: Axes, start: tuple, end: tuple, style: str, **line) -> None:
    arrow = dict(arrowstyle=style, shrinkA=0, shrinkB=0, **line)
    axis.annotate('', end, start, arrowprops=arrow)


def main() -> None:
    ToolParser(description=__doc__.splitlines()[0]).parse_args()

    from results import UNTRAINED, read_lines, read_table

    from snnet_mm.evaluation import plot_pareto

    folder, space = ROOT / 'docs' / 'pictures', TwoWaySpace((6, 12))
    bundles = {label: read_table(run) for label, run in BUNDLES.items()}
    run, seed = PLOTTED
    known = [x for x in read_lines(run, file=UNTRAINED) if x['seed'] == seed]
    figures = dict(
        routes=plot_routes(space),
        overview=plot_overview(bundles['branches'], read_lines(FRONT), space),
        elastic_pareto=plot_ways(bundles),
        serving=plot_loads(),
        untrained=plot_untrained(known),
    )
    for name, figure in figures.items():
        figure.savefig(folder / f'{name}.png', dpi=130)
    plot_pareto(StitchTable.read(ADE20K), folder / 'ade20k_published_pareto.png')
    plot_pareto(read_table('stitched_1200_seed0'), folder / 'dinov2_pareto.png')
    print(f'Wrote {len(figures) + 2} pictures to {folder}')


if __name__ == '__main__':
    run_command(main)
