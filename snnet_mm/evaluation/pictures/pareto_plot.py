"""The picture of an evaluation: metric over cost."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from snnet_mm.stitching import UNITS, StitchResults

from .figures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND_STYLES = {
    'anchor': dict(color='goldenrod', marker='*', s=220, edgecolor='black', zorder=5),
    'FS': dict(color='tab:blue', marker='o', s=36, zorder=3),
    'SF': dict(color='tab:orange', marker='s', s=36, zorder=3),
    'FSF': dict(color='tab:green', marker='^', s=30, zorder=2),
    'SFS': dict(color='tab:purple', marker='v', s=30, zorder=2),
}
# Of other fronts and of baselines.
OTHER_COLORS = ('dimgray', 'tab:cyan', 'tab:brown', 'tab:olive')


class Baseline(NamedTuple):
    """A network to compare with, such as an anchor trained alone.

    ``cost`` is in the unit of a cost table.
    """

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
    """Draw every stitch by kind, with the Pareto front as a line.

    Args:
        results: The evaluated stitches.
        path: Picture to write; the ending tells the format.
        cost: The cost to draw the metric over: ``'flops'``, ``'params'``,
            ``'latency'`` or ``'memory'``.
        baselines: Points to draw besides.
        others: Labels and results of other models, whose fronts are drawn.
        title: Heading.
    """
    figure = draw_pareto(results, cost, baselines, others)
    if title:
        figure.axes[0].set_title(textwrap.fill(title, 95), fontsize='small')
    save_figure(figure, path, dpi=160)


def draw_pareto(
    results: StitchResults,
    cost: str,
    baselines: Sequence[Baseline] = (),
    others: Sequence[tuple[str, StitchResults]] = (),
) -> Figure:
    """Return the figure of :func:`plot_pareto`.

    In SVG files points of a kind are a group of the id ``stitches-<kind>``, in the
    order of :func:`ids_by_kind`.
    """
    label, unit = cost_axis(results, cost)
    column, scores = results.column(cost), results.scores()
    figure = new_figure(8, 4.5)
    axes = figure.subplots()
    for kind, ids in ids_by_kind(results).items():
        axes.scatter(
            [column[i] / unit for i in ids],
            [scores[i] for i in ids],
            label=f'{kind} ({len(ids)})',
            gid=f'stitches-{kind}',
            **dict(linewidth=0.6) | KIND_STYLES[kind],
        )
    front = results.front(cost)
    axes.plot(
        [column[i] / unit for i in front],
        [scores[i] for i in front],
        color='crimson',
        linewidth=1.2,
        label=f'Pareto front ({len(front)})',
        zorder=4,
    )
    for n, (name, other) in enumerate(others):
        front, column, scores = other.front(cost), other.column(cost), other.scores()
        axes.plot(
            [column[i] / unit for i in front],
            [scores[i] for i in front],
            '.--',
            color=OTHER_COLORS[n % len(OTHER_COLORS)],
            linewidth=1,
            label=name,
            zorder=1,
        )
    for n, (name, x, y) in enumerate(baselines):
        style = dict(marker='X', s=70, edgecolor='black', linewidth=0.6, zorder=6)
        color = OTHER_COLORS[n % len(OTHER_COLORS)]
        axes.scatter([x / unit], [y], color=color, label=name, **style)
    axes.set_xlabel(label)
    better = '' if results.higher_is_better else ' (lower is better)'
    axes.set_ylabel(results.metric + better)
    axes.grid(alpha=0.3)
    # Beside the axes: inside, it would hide stitches.
    figure.legend(fontsize='small', loc='outside right upper')
    return figure


def ids_by_kind(results: StitchResults) -> dict[str, list[int]]:
    """Return the ids of the stitches that are drawn, by kind."""
    scores = results.scores()
    drawn = [r for r in results.complete if r.id in scores]
    by_kind = {kind: [r.id for r in drawn if r.kind == kind] for kind in KIND_STYLES}
    return {kind: ids for kind, ids in by_kind.items() if ids}


def cost_axis(results: StitchResults, cost: str) -> tuple[str, float]:
    """Label of the axis of a cost, and how much one unit on it is."""
    unit, setup = UNITS[cost], results.setup
    if cost == 'params':
        return unit.heading, unit.factor
    how = 'multiply-accumulates' if cost == 'flops' else setup
    height, width = results.input_size
    label = f'{unit.heading} at {height}x{width}' + (f' ({how})' if how else '')
    return label, unit.factor
