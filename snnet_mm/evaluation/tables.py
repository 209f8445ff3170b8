"""Tables of costs and results, and the report of an evaluation."""

import os
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.table import Table

from snnet_mm.costs.sizes import size_name
from snnet_mm.stitching import (
    UNITS,
    CostTable,
    StitchingSpace,
    StitchResults,
    cost_column,
    joint_rows,
    pareto_front,
)

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


def cost_report(space: StitchingSpace, costs: CostTable, ids: Sequence[int]) -> Table:
    """Return a table of costs, one row per stitch in the order of the ids."""
    notes = '; '.join(str(note) for note in (costs.setup, costs.scope) if note)
    title = f'{len(ids)} stitches at ' + '{}x{}'.format(*costs.input_size)
    known = next(iter(costs.costs.values()))
    names = [name for name in UNITS if getattr(known, name) is not None]
    columns = {UNITS[name].heading: (UNITS[name], costs.column(name)) for name in names}
    table = _table(title + (notes and f' ({notes})'), columns)
    for i in ids:
        cells = [unit.cell(column[i]) for unit, column in columns.values()]
        _add_row(table, i, space[i].kind, space.describe(space[i]), *cells)
    return table


def stitch_table(results: StitchResults) -> Table:
    """Return a table of results, one row per stitch, in ascending order of FLOPs."""
    others = [m for m in results.stitches[0].metrics if not m.endswith(LEFT_OUT)]
    metrics = [results.metric, *(m for m in others if m != results.metric)]
    mixed = len(results.complete) < len(results.stitches)  # some were only screened
    headings = [UNITS['flops'].heading, UNITS['params'].heading]
    headings += [m.rsplit('/')[-1] for m in metrics]
    headings += ['images'] * mixed + ['Pareto']
    notes = [f'costs: {results.scope}'] if results.scope else []
    if results.data_size is not None:
        most = results.complete[0].num_images
        notes += [f'metrics of {most} of {results.data_size} images']
    notes = f' ({"; ".join(notes)})' if notes else ''
    where = '{}x{}'.format(*results.input_size)
    table = _table(f'Stitches at {where}: {len(results.stitches)}{notes}', headings)
    try:
        front = results.front()
    except ValueError:  # all are NaN, or the metric's direction is unknown
        front = []
    for r in sorted(results.stitches, key=lambda r: (r.flops, r.id)):
        cells = [UNITS['flops'].cell(r.flops)]
        cells.append('' if r.params is None else UNITS['params'].cell(r.params))
        # Shares and errors below 1 get three decimals.
        values = [r.metrics[m] for m in metrics]
        cells += [f'{v:.2f}' if v >= 1 else f'{v:.3f}' for v in values]
        cells += [str(r.num_images)] * mixed + ['*' if r.id in front else '']
        _add_row(table, r.id, r.kind, r.route, *cells)
    return table


def _explained(results: StitchResults, front: Sequence[int]) -> Iterator[str]:
    better = 'more' if results.higher_is_better else 'less'
    yield (
        f'* on the Pareto front, {len(front)} of {len(results.stitches)} stitches: '
        f'none that costs as little has {better} {results.metric}.'
    )
    found = results.rank_correlation()
    yield f'Rank correlation of {results.metric} and FLOPs: {found:.2f}.'


def report_stitches(
    results: StitchResults, out_dir: str | os.PathLike, quiet: bool = False
) -> None:
    """Print the table unless ``quiet``; write ``stitches.json`` and ``pareto.png``."""
    console, out_dir = wide_console(), Path(out_dir)
    console.quiet = quiet
    results.save(out_dir / 'stitches.json')
    console.print(stitch_table(results))
    try:
        front = results.front()
    except ValueError as error:  # results are saved: do not fail after a long test
        console.print(f'Wrote stitches.json to {out_dir}; no front: {error}')
        return
    if len(results.stitches) > 2:
        for line in _explained(results, front):
            console.print(line, soft_wrap=True)
    plot_pareto(results, out_dir / 'pareto.png')
    console.print(f'Wrote stitches.json and pareto.png to {out_dir}', soft_wrap=True)


def report_sizes(results: Sequence[StitchResults], out_dir: str | os.PathLike) -> None:
    """Print the joint front of stitches at several sizes, and write ``pareto.png``."""
    console = wide_console()
    try:
        rows = joint_rows(results)
    except ValueError as error:
        console.print(f'No joint front: {error}')
        return
    first = results[0]
    costs = cost_column(rows, 'flops')
    scores = {key: first.score(row) for key, row in rows.items()}
    headings = ['size', UNITS['flops'].heading, first.metric.rsplit('/')[-1]]
    table = _table(f'Front over {len(costs)} pairs of a stitch and a size', headings)
    for pair in pareto_front(costs, scores, first.higher_is_better):
        r = rows[pair]
        cells = size_name(pair.input_size), UNITS['flops'].cell(r.flops)
        _add_row(table, r.id, r.kind, r.route, *cells, f'{scores[pair]:.4g}')
    console.print(table)
    *others, last = sorted(results, key=lambda r: r.input_size)
    others = [(f'front at {size_name(r.input_size)}', r) for r in others]
    title = f'Stitches at {size_name(last.input_size)}'
    plot_pareto(last, Path(out_dir) / 'pareto.png', others=others, title=title)


def _table(title: str, headings: Iterable[str]) -> Table:
    table = Table(title=title)
    for name in ('id', 'kind', 'route', *headings):
        table.add_column(name, justify='left' if name in ('kind', 'route') else 'right')
    return table


def _add_row(table: Table, stitch_id: int, kind: str, *cells: str) -> None:
    style = 'bold' if kind == 'anchor' else None
    table.add_row(str(stitch_id), kind, *cells, style=style)
