"""Results of an evaluation: a table, a JSON file and a picture."""

from __future__ import annotations

import os
from pathlib import Path

from rich.table import Table

from snnet_mm.stitching import UNITS, StitchResults

from .cost_report import wide_console
from .pictures.pareto_plot import plot_pareto

# COCO's metrics of small, medium and large objects, which would not fit.
LEFT_OUT_OF_TABLES = ('_s', '_m', '_l')


def report_stitches(results: StitchResults, out_dir: str | os.PathLike) -> None:
    """Print the table, and write ``stitches.json`` and ``pareto.png``.

    Args:
        results: The evaluated stitches.
        out_dir: Folder for the files.
    """
    console, out_dir = wide_console(), Path(out_dir)
    results.save(out_dir / 'stitches.json')
    console.print(stitch_table(results))
    try:
        front = results.front()
    except ValueError as error:  # the evaluation took its time: nothing is lost
        console.print(f'Wrote stitches.json to {out_dir}; no front: {error}')
        return
    if len(results.stitches) > 2:
        console.print(
            f'Rank correlation of {results.metric} and FLOPs: '
            f'{results.rank_correlation():.2f}; {len(front)} of '
            f'{len(results.stitches)} stitches are on the Pareto front'
        )
    plot_pareto(results, out_dir / 'pareto.png')
    console.print(f'Wrote stitches.json and pareto.png to {out_dir}', soft_wrap=True)


def stitch_table(results: StitchResults) -> Table:
    """One row per stitch, ascending in FLOPs."""
    height, width = results.input_size
    table = Table(title=f'Stitches at {height}x{width}: {len(results.stitches)}')
    for name in ('id', 'kind', 'route'):
        table.add_column(name, justify='right' if name == 'id' else 'left')
    metrics = [
        m for m in results.stitches[0].metrics if not m.endswith(LEFT_OUT_OF_TABLES)
    ]
    short = [m.rsplit('/')[-1] for m in metrics]
    for name in (UNITS['flops'].heading, UNITS['params'].heading, *short):
        table.add_column(name, justify='right')
    screened = len(results.complete) < len(results.stitches)
    if screened:
        table.add_column('images', justify='right')
    table.add_column('Pareto', justify='center')
    try:
        front = results.front()
    except ValueError:  # all are NaN, or nobody knows which way is better
        front = []
    for r in sorted(results.stitches, key=lambda r: (r.flops, r.id)):
        table.add_row(
            str(r.id),
            r.kind,
            r.route,
            UNITS['flops'].cell(r.flops),
            '' if r.params is None else UNITS['params'].cell(r.params),
            *(_metric(r.metrics[m]) for m in metrics),
            *([str(r.num_images)] if screened else []),
            '*' if r.id in front else '',
            style='bold' if r.kind == 'anchor' else None,
        )
    return table


def _metric(value: float) -> str:
    """Two decimals, or three where the metric is a share or an error below 1."""
    return f'{value:.2f}' if value >= 1 else f'{value:.3f}'
