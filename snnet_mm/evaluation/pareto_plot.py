"""The picture of an evaluation: metric over cost."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from snnet_mm.stitching import StitchResults

from .figures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KIND_STYLES = {
    'anchor': dict(color='goldenrod', marker='*', s=220, edgecolor='black', zorder=5),
    'FS': dict(color='tab:blue', marker='o', s=36, zorder=3),
    'SF': dict(color='tab:orange', marker='s', s=36, zorder=3),
    'FSF': dict(color='tab:green', marker='^', s=30, zorder=2),
    'SFS': dict(color='tab:purple', marker='v', s=30, zorder=2),
}
FRONT_COLOR = 'crimson'
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

    Raises:
        ValueError: If the results do not hold that cost.
    """
    label, unit = cost_axis(results, cost)
    figure = new_figure(8, 4.5)
    axes = figure.subplots()
    _draw_stitches(axes, results, cost)
    _draw_fronts(axes, others, cost, unit)
    _draw_baselines(axes, baselines, unit)
    axes.set_xlabel(label)
    axes.set_ylabel(score_label(results))
    if title:
        axes.set_title(textwrap.fill(title, 95), fontsize='small')
    axes.grid(alpha=0.3)
    # Beside the axes: inside, it would hide stitches.
    figure.legend(fontsize='small', loc='outside right upper')
    save_figure(figure, path, dpi=160)


def _draw_stitches(axes: Axes, results: StitchResults, cost: str) -> None:
    _, unit = cost_axis(results, cost)
    x = {i: value / unit for i, value in results.column(cost).items()}
    y = results.scores()
    for kind, style in KIND_STYLES.items():
        ids = [r.id for r in results.complete if r.kind == kind]
        if ids:
            axes.scatter(
                [x[i] for i in ids],
                [y[i] for i in ids],
                label=f'{kind} ({len(ids)})',
                linewidth=0.6,
                **style,
            )
    front = results.front(cost)
    axes.plot(
        [x[i] for i in front],
        [y[i] for i in front],
        color=FRONT_COLOR,
        linewidth=1.2,
        label=f'Pareto front ({len(front)})',
        zorder=4,
    )


def _draw_fronts(
    axes: Axes, others: Sequence[tuple[str, StitchResults]], cost: str, unit: float
) -> None:
    for (name, other), color in zip(others, _cycle(len(others)), strict=True):
        ids, column, scores = other.front(cost), other.column(cost), other.scores()
        axes.plot(
            [column[i] / unit for i in ids],
            [scores[i] for i in ids],
            color=color,
            linestyle='--',
            marker='.',
            linewidth=1,
            label=name,
            zorder=1,
        )


def _draw_baselines(axes: Axes, baselines: Sequence[Baseline], unit: float) -> None:
    for baseline, color in zip(baselines, _cycle(len(baselines)), strict=True):
        axes.scatter(
            [baseline.cost / unit],
            [baseline.score],
            color=color,
            marker='X',
            s=70,
            edgecolor='black',
            linewidth=0.6,
            label=baseline.label,
            zorder=6,
        )


def cost_axis(results: StitchResults, cost: str) -> tuple[str, float]:
    """Label of the axis of a cost, and how much one unit on it is."""
    setup = '' if results.setup is None else f' ({results.setup})'
    height, width = results.input_size
    return {
        'flops': (f'GFLOPs at {height}x{width} (multiply-accumulates)', 1e9),
        'params': ('million parameters', 1e6),
        'latency': (f'ms at {height}x{width}{setup}', 1.0),
        'memory': (f'MB at {height}x{width}{setup}', 1e6),
    }[cost]


def score_label(results: StitchResults) -> str:
    """Label of the axis of the metric."""
    return results.metric + ('' if results.higher_is_better else ' (lower is better)')


def _cycle(number: int) -> list[str]:
    return [OTHER_COLORS[n % len(OTHER_COLORS)] for n in range(number)]
