"""The picture of an evaluation: metric over FLOPs."""

from __future__ import annotations

import os

from matplotlib.figure import Figure

from snnet_mm.stitching import StitchResults
from snnet_mm.utils import atomic_path

KIND_STYLES = {
    'anchor': dict(color='goldenrod', marker='*', s=220, edgecolor='black', zorder=4),
    'FS': dict(color='tab:blue', marker='o', s=36, zorder=3),
    'SF': dict(color='tab:orange', marker='s', s=36, zorder=3),
    'FSF': dict(color='tab:green', marker='^', s=30, zorder=2),
    'SFS': dict(color='tab:purple', marker='v', s=30, zorder=2),
}


def plot_pareto(results: StitchResults, path: str | os.PathLike) -> None:
    """Draw every stitch by kind, with the Pareto front as a line.

    Args:
        results: The evaluated stitches.
        path: Picture to write; the ending tells the format.
    """
    figure = Figure(figsize=(7, 4.5), layout='constrained')
    axes = figure.subplots()
    by_id = {r.id: r for r in results.stitches}
    for kind, style in KIND_STYLES.items():
        chosen = [r for r in results.stitches if r.kind == kind]
        if chosen:
            x, y = _points(results, chosen)
            axes.scatter(x, y, label=f'{kind} ({len(chosen)})', linewidth=0.6, **style)
    x, y = _points(results, [by_id[i] for i in results.front()])
    axes.plot(x, y, color='crimson', linewidth=1.2, label='Pareto front', zorder=1)
    height, width = results.input_size
    axes.set_xlabel(f'GFLOPs at {height}x{width} (multiply-accumulates)')
    axes.set_ylabel(results.metric)
    axes.grid(alpha=0.3)
    axes.legend(fontsize='small', loc='lower right')
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=160)


def _points(results: StitchResults, chosen) -> tuple[list[float], list[float]]:
    return [r.flops / 1e9 for r in chosen], [results.score(r) for r in chosen]
