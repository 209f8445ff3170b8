"""Redraw the figures of the docs from results in this repository: ``make pictures``.

Photos need trained weights and are not redrawn.
"""

import json
from pathlib import Path

import matplotlib

matplotlib.use('Agg')
from matplotlib import pyplot as plt  # noqa: E402

from snnet_mm.stitching import StitchTable, TwoWaySpace  # noqa: E402
from snnet_mm.utils import ToolParser, run_command  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / 'docs' / 'pictures'
RESULTS = {
    'ade20k_published_pareto': 'setr/published/setr-naive_snnetv2-deit3-s-l_ade20k',
    'dinov2_pareto': 'dinov2/results/stitched_1200_seed0',
}
# Milliseconds and metrics of graphs in float32 and int8, by label.
BUNDLES = {
    'branches': 'dinov2/results/bundle_600_seed0_test',
    'whole blocks': 'dinov2/results/bundle_blocks_600_seed0_test',
    'smaller images': 'dinov2/results/bundle_sizes_600_seed0_test',
}
COLORS = '#2e6da4', '#e08e45', '#5a9e6f'
LOADS = ROOT / 'configs' / 'dinov2' / 'results' / 'serving_fp32.json'


def plot_loads(path: Path, out: Path) -> None:
    """Plot the effective metric of each policy over the request rate."""
    loads = json.loads(path.read_text())['loads']
    cases = sorted({(row['deadline'], row['bursts']) for row in loads})
    figure, axes = plt.subplots(1, len(cases), figsize=(3 * len(cases), 3), sharey=True)
    for axis, (deadline, bursts) in zip(axes, cases, strict=True):
        for name in dict.fromkeys(row['policy'] for row in loads):
            about = dict(policy=name, deadline=deadline, bursts=bursts)
            rows = [row for row in loads if about.items() <= row.items()]
            rates, values = ([r[key] for r in rows] for key in ('rate', 'effective'))
            axis.plot(
                rates, values, marker='o', label=name, lw=3 if name == 'rule' else 1
            )
        axis.set_title(f'{deadline:g} ms' + ', bursts' * bursts)
        axis.set_xlabel('requests per second')
    axes[0].set_ylabel('mIoU, a miss counts 0')
    axes[0].legend()
    figure.savefig(out, bbox_inches='tight', dpi=110)
    plt.close(figure)


def plot_ways(bundles: dict[str, StitchTable], out: Path) -> None:
    """Plot metrics over milliseconds of several ways to smaller graphs."""
    figure, axis = plt.subplots(figsize=(8, 4.5), constrained_layout=True)
    for (label, bundle), color in zip(bundles.items(), COLORS, strict=True):
        for precision, style in (('fp32', 'o-'), ('int8', 's--')):
            rows = [row for row in bundle.rows if row.precision == precision]
            rows.sort(key=lambda row: row.latency)
            x, y = zip(*((row.latency, bundle.score(row)) for row in rows), strict=True)
            axis.plot(x, y, style, color=color, label=f'{label}, {precision}')
    axis.set(xlabel='ms per image (one CPU thread)', ylabel='mIoU, CamVid test images')
    axis.legend(loc='lower right', fontsize=9)
    axis.grid(alpha=0.3)
    figure.savefig(out, dpi=160)
    plt.close(figure)


def read(name: str) -> StitchTable:
    return StitchTable.read(ROOT / 'configs' / f'{name}.json')


def main() -> None:
    ToolParser(description=__doc__.splitlines()[0]).parse_args()
    from overview import plot_overview
    from route_plot import plot_routes

    from snnet_mm.evaluation import plot_pareto

    plot_routes(TwoWaySpace((6, 12)), PICTURES / 'routes.png')
    for name, results in RESULTS.items():
        plot_pareto(read(results), PICTURES / f'{name}.png')
    bundles = {label: read(name) for label, name in BUNDLES.items()}
    plot_ways(bundles, PICTURES / 'elastic_pareto.png')
    plot_overview(bundles['branches'], 2, PICTURES / 'overview.png')
    plot_loads(LOADS, PICTURES / 'serving.png')
    print(f'Wrote {len(RESULTS) + 4} pictures to {PICTURES}')


if __name__ == '__main__':
    run_command(main)
