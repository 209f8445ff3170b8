"""Plot of an evaluation: metric over cost."""

import os
import textwrap
from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

from snnet_mm.stitching import UNITS, StitchRow, StitchTable, cost_column

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
    table: StitchTable,
    path: str | os.PathLike,
    cost: str = 'flops',
    baselines: Sequence[Baseline] = (),
    others: Sequence[tuple[str, StitchTable]] = (),
    title: str | None = None,
) -> None:
    """Plot evaluated stitches by kind, with the Pareto front as a line.

    Args:
        table: The evaluated stitches.
        path: Output file; the suffix determines the format.
        cost: Cost on the x-axis; see :data:`UNITS`. Default: ``'flops'``.
        baselines: Additional points.
        others: Labels and tables of other models; only their fronts are drawn.
        title: Title of the plot. Default: none.
    """
    figure = new_figure(8, 4.5)
    axes, rows = figure.subplots(), table.ranked()
    skips = any(row.kind == 'skip' for row in table.rows)
    names = dict(anchor='network', skip='budgets') if skips else {}
    for kind, style in KIND_STYLES.items():
        if found := [row for row in rows if row.kind == kind]:
            style = dict(linewidth=0.6) | style
            label = f'{names.get(kind, kind)} ({len(found)})'
            axes.scatter(*_points(table, cost, found), label=label, **style)
    front = table.front(cost)
    if len(front) > 1:  # of one point, no line would be visible
        style = dict(color='crimson', linewidth=1.2, zorder=4)
        style['label'] = f'Pareto front ({len(front)})'
        axes.plot(*_points(table, cost, front), **style)
    colors = cycle(OTHER_COLORS)
    for name, other in others:
        style = dict(label=name, color=next(colors), linewidth=1, zorder=1)
        axes.plot(*_points(other, cost, other.front(cost)), '.--', **style)
    style = dict(marker='X', s=70, edgecolor='black', linewidth=0.6, zorder=6)
    for name, value, score in baselines:
        x = value / UNITS[cost].factor
        axes.scatter([x], [score], color=next(colors), label=name, **style)
    axes.set_xlabel(textwrap.fill(_cost_label(table, cost), 70))
    better = '' if table.higher_is_better else ' (lower is better)'
    axes.set_ylabel(table.metric + better)
    if not any(table.score(row) for row in rows):  # as of an untrained detector
        axes.set_ylim(0, 1)
    if title:
        axes.set_title(textwrap.fill(title, 95), fontsize='small')
    axes.grid(alpha=0.3)
    # Inside the axes, the legend would hide stitches.
    figure.legend(fontsize='small', loc='outside right upper')
    save_figure(figure, path, dpi=160)


def _points(
    table: StitchTable, cost: str, rows: Sequence[StitchRow]
) -> tuple[list[float], list[float]]:
    column, factor = cost_column(rows, cost), UNITS[cost].factor
    return [x / factor for x in column.values()], [table.score(row) for row in rows]


def _cost_label(table: StitchTable, cost: str) -> str:
    measured = table.shared('setup')
    how = dict(flops='multiply-accumulates', params=None).get(cost, measured)
    notes = '; '.join(str(note) for note in (how, table.scope) if note)
    size = table.shared('input_size')
    size = '' if cost == 'params' or size is None else ' at {}x{}'.format(*size)
    return f'{UNITS[cost].heading}{size}' + (notes and f' ({notes})')
