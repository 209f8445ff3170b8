"""Printed tables of costs and results, and the report of an evaluation."""

import os
from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.table import Table

from snnet_mm.costs.sizes import size_name
from snnet_mm.stitching import UNITS, StitchTable
from snnet_mm.utils import plural

from .pictures.pareto_plot import plot_pareto

# rich assumes 80 columns if the output is not a terminal; the routes need more.
LOG_WIDTH = 160
# COCO metrics of small, medium and large objects: the table would get too wide.
LEFT_OUT = ('_s', '_m', '_l')


def wide_console() -> Console:
    """Return a console that does not crop tables if the output is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=LOG_WIDTH)


def as_text(table: Table) -> str:
    """Return a table as plain text, for logs."""
    console = Console(width=LOG_WIDTH, file=StringIO())
    console.print(table)
    return console.file.getvalue()


def stitch_table(table: StitchTable) -> Table:
    """Return known costs and metrics as a table to print, in the order of the rows."""
    columns = {}
    for name, unit in UNITS.items():
        costs = [getattr(row, name) for row in table.rows]
        if {*costs} != {None}:
            cells = ['' if cost is None else unit.cell(cost) for cost in costs]
            columns[unit.heading] = cells
    if table.shared('input_size') is None:
        columns['size'] = [size_name(row.input_size) for row in table.rows]
    if table.metric is not None:
        names = dict.fromkeys(n for row in table.rows for n in row.metrics)
        names = (n for n in names if n != table.metric and not n.endswith(LEFT_OUT))
        for name in (table.metric, *names):
            values = [row.metrics.get(name) for row in table.rows]
            # Shares and errors below 1 get three decimals.
            cells = ['' if v is None else f'{v:.{2 if v >= 1 else 3}f}' for v in values]
            columns[name.rsplit('/')[-1]] = cells
        try:
            front = {row.key for row in table.front()}
        except ValueError:  # all are NaN, or the metric's direction is unknown
            front = ()
        columns['Pareto'] = ['*' if r.key in front else '' for r in table.rows]
    printed = Table(title=_title(table))
    for name in ('id', 'kind', 'route', *columns):
        left = name in ('kind', 'route')
        printed.add_column(name, justify='left' if left else 'right')
    for row, *cells in zip(table.rows, *columns.values(), strict=True):
        style = 'bold' if row.kind == 'anchor' else None
        printed.add_row(str(row.id), row.kind, row.route, *cells, style=style)
    return printed


def _title(table: StitchTable) -> str:
    notes = [str(table.shared('setup') or ''), table.scope or '']
    if table.data_size is not None:
        number = table.shared('num_images')
        notes.append(f'metrics of {number} of {table.data_size} images')
    size, notes = table.shared('input_size'), '; '.join(filter(None, notes))
    where = f'at {size_name(size)}' if size else 'of several sizes'
    return f'{plural(len(table), "stitch")} {where}' + (notes and f' ({notes})')


def report_stitches(
    table: StitchTable, out_dir: str | os.PathLike, quiet: bool = False
) -> None:
    """Print results by FLOPs unless ``quiet``, and draw ``pareto.png``.

    Its cost is milliseconds, or FLOPs if these are not measured.
    """
    console, out_dir = wide_console(), Path(out_dir)
    console.quiet = quiet
    ordered = sorted(table.rows, key=lambda row: (row.flops, row.id))
    console.print(stitch_table(replace(table, rows=ordered)))
    try:
        front = table.front()
    except ValueError as error:  # results are saved: do not fail after a long test
        console.print(f'Wrote stitches.json to {out_dir}; no front: {error}')
        return
    if len(table) > 2:
        better = 'higher' if table.higher_is_better else 'lower'
        legend = f'* on the Pareto front, {len(front)} of {len(table)} stitches: no '
        legend += f'cheaper stitch has an equal or {better} {table.metric}.'
        console.print(legend, soft_wrap=True)
    measured = all(row.latency is not None for row in table.rows)
    cost = 'latency' if measured else 'flops'
    plot_pareto(table, out_dir / 'pareto.png', cost)
    console.print(f'Wrote stitches.json and pareto.png to {out_dir}', soft_wrap=True)
