"""What stitches cost, as a table and as CSV."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table

from snnet_mm.stitching import UNITS, CostTable, StitchingSpace
from snnet_mm.utils import atomic_path

# rich falls back to 80 columns where the output is no terminal; the routes need more.
LOG_WIDTH = 160


def wide_console() -> Console:
    """A console that does not cut tables where the output is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=LOG_WIDTH)


def as_text(table: Table) -> str:
    """A table as plain text, for logs."""
    console = Console(width=LOG_WIDTH, file=StringIO())
    console.print(table)
    return console.file.getvalue()


def known_costs(costs: CostTable) -> list[str]:
    """Names of the costs that a table holds."""
    first = next(iter(costs.costs.values()))
    return [name for name in UNITS if getattr(first, name) is not None]


def cost_report(space: StitchingSpace, costs: CostTable, ids: Sequence[int]) -> Table:
    """One row per stitch, in the order of the ids.

    Args:
        space: The stitching space.
        costs: Costs of its stitches.
        ids: Stitches to show.
    """
    height, width = costs.input_size
    where = '' if costs.setup is None else f' ({costs.setup})'
    table = Table(title=f'{len(ids)} stitches at {height}x{width}{where}')
    names = known_costs(costs)
    table.add_column('id', justify='right')
    table.add_column('kind')
    table.add_column('route')
    for name in names:
        table.add_column(UNITS[name].heading, justify='right')
    for i in ids:
        stitch = space[i]
        cells = [UNITS[name].cell(getattr(costs[i], name)) for name in names]
        style = 'bold' if stitch.kind == 'anchor' else None
        table.add_row(str(i), stitch.kind, space.describe(stitch), *cells, style=style)
    return table


def write_cost_csv(
    space: StitchingSpace,
    costs: CostTable,
    ids: Sequence[int],
    path: str | os.PathLike,
) -> None:
    """Write one row per stitch, in the units of the cost table.

    Args:
        space: The stitching space.
        costs: Costs of its stitches.
        ids: Stitches to write, in this order.
        path: The CSV file.
    """
    names = known_costs(costs)
    with atomic_path(path) as temporary, temporary.open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(['id', 'kind', 'route', *names])
        for i in ids:
            row = [getattr(costs[i], name) for name in names]
            writer.writerow([i, space[i].kind, space.describe(space[i]), *row])
