"""Plot of an evaluation: metric over cost."""

import os
import textwrap
from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

from snnet_mm.stitching import UNITS, StitchResults

from .figures import FAST, SLOW, new_figure, save_figure

# FS and SF have the colour of the anchor in which they end.
KIND_STYLES = {
    'anchor': dict(color='white', marker='*', s=220, edgecolor='black', zorder=5),
    'FS': dict(color=SLOW, marker='o', s=36, zorder=3),
    'SF': dict(color=FAST, marker='s', s=36, zorder=3),
    'FSF': dict(color='tab:green', marker='^', s=30, zorder=2),
    'SFS': dict(color='tab:purple', marker='v', s=30, zorder=2),
    'skip': dict(color=SLOW, marker='o', s=40, zorder=3),
}
# Colours of other fronts and of baselines.
OTHER_COLORS = ('dimgray', 'tab:cyan', 'tab:brown', 'tab:olive')


class Baseline(NamedTuple):
    """A network to compare with; ``cost`` has the unit of the cost table."""

    label: str
    cost: float
    score: float


def plot_pareto(
    results: StitchResults,
    path: str | os.PathLike,
    cost: str = 'flops',
    baselines: Sequence[Baseline] = (),
    others: Sequence[tuple[str, StitchResults]] = (),
    title: str | None = None,
) -> None:
    """Plot fully evaluated stitches by kind, with the Pareto front as a line.

    Args:
        results: The evaluated stitches.
        path: Output file; the suffix determines the format.
        cost: Cost on the x-axis; see :data:`UNITS`. Default: ``'flops'``.
        baselines: Additional points.
        others: Labels and results of other models; only their fronts are drawn.
        title: Title of the plot. Default: none.
    """
    figure = new_figure(8, 4.5)
    axes = figure.subplots()
    scores = results.scores()
    skips = any(r.kind == 'skip' for r in results.stitches)
    names = dict(anchor='network', skip='budgets') if skips else {}
    for kind, style in KIND_STYLES.items():
        found = [r for r in results.complete if r.kind == kind and r.id in scores]
        if found:
            style = dict(linewidth=0.6) | style
            points = _points(results, cost, [r.id for r in found])
            axes.scatter(
                *points, label=f'{names.get(kind, kind)} ({len(found)})', **style
            )
    front = results.front(cost)
    style = dict(color='crimson', linewidth=1.2, zorder=4)
    style['label'] = f'Pareto front ({len(front)})'
    axes.plot(*_points(results, cost, front), **style)
    colors = cycle(OTHER_COLORS)
    for name, other in others:
        style = dict(label=name, color=next(colors), linewidth=1, zorder=1)
        axes.plot(*_points(other, cost, other.front(cost)), '.--', **style)
    style = dict(marker='X', s=70, edgecolor='black', linewidth=0.6, zorder=6)
    for name, value, score in baselines:
        x = value / UNITS[cost].factor
        axes.scatter([x], [score], color=next(colors), label=name, **style)
    axes.set_xlabel(_cost_label(results, cost))
    better = '' if results.higher_is_better else ' (lower is better)'
    axes.set_ylabel(results.metric + better)
    if title:
        axes.set_title(textwrap.fill(title, 95), fontsize='small')
    axes.grid(alpha=0.3)
    # Inside the axes, the legend would hide stitches.
    figure.legend(fontsize='small', loc='outside right upper')
    save_figure(figure, path, dpi=160)


def _points(
    results: StitchResults, cost: str, ids: Sequence[int]
) -> tuple[list[float], list[float]]:
    column, factor = results.column(cost), UNITS[cost].factor
    rows = {r.id: r for r in results.stitches}
    return [column[i] / factor for i in ids], [results.score(rows[i]) for i in ids]


def _cost_label(results: StitchResults, cost: str) -> str:
    how = dict(flops='multiply-accumulates', params=None).get(cost, results.setup)
    notes = '; '.join(str(note) for note in (how, results.scope) if note)
    height, width = results.input_size
    size = '' if cost == 'params' else f' at {height}x{width}'
    return f'{UNITS[cost].heading}{size}' + (notes and f' ({notes})')
