"""Add results of a test to the table that the pages quote, configs/results.csv.

The file has a line for each stitch, input size, precision and metric of a run. Its
shares, in percent, are of the metric of the run's most expensive row in the same
precision: of the network, or of the slow anchor.
"""

import argparse
import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from snnet_mm.stitching import StitchRow, StitchTable
from snnet_mm.stitching.table import Key, Setup
from snnet_mm.utils import ToolParser, atomic_path, check, run_command

FILE = Path(__file__).resolve().parents[2] / 'configs' / 'results.csv'
# Of untrained.py, which adds differences with intervals to the fields below.
UNTRAINED = FILE.with_name('untrained.csv')
ABOUT = 'run', 'network', 'data', 'seed', 'device'
FIELDS = (
    *ABOUT, 'size', 'precision', 'stitch', 'kind', 'budget', 'route', 'gflops', 'ms',
    'metric', 'score', 'share', 'commands',
)  # fmt: skip


def read_lines(*runs: str, file: Path | None = None) -> list[dict[str, str]]:
    """Return the lines of runs, by default of all, from one of the two tables."""
    with (file or FILE).open(newline='') as lines:
        return [r for r in csv.DictReader(lines) if not runs or r['run'] in runs]


def read_table(run: str) -> StitchTable:
    """Return a run as a table, for metrics of which more is better."""
    rows: dict[Key, StitchRow] = {}
    for line in read_lines(run):
        setup = Setup(line['device'], 1, line['precision']) if line['ms'] else None
        height, width = map(int, line['size'].split('x'))
        row = StitchRow(
            id=int(line['stitch']),
            kind=line['kind'],
            route=line['route'],
            flops=round(float(line['gflops']) * 1e9),
            params=None,
            input_size=(height, width),
            latency=float(line['ms']) if setup else None,
            setup=setup,
        )
        row = rows.setdefault(row.key, row)
        score = {line['metric']: float(line['score'])}
        rows[row.key] = replace(row, metrics={**row.metrics, **score})
    metrics = next(iter(rows.values())).metrics
    directions = dict.fromkeys(metrics, 'higher')
    return StitchTable(
        [*rows.values()], metric=next(iter(metrics)), directions=directions
    )


def lines_of(
    table: StitchTable, metrics: Sequence[str], budgets: Sequence[str], **about: str
) -> list[dict[str, str]]:
    """Return the lines of a table; ``budgets`` are those of stitches 1, 2, ..."""
    lines = []
    for row in table.rows:
        alike = [r for r in table.rows if r.precision == row.precision]
        whole = max(alike, key=lambda r: r.flops)
        for metric in metrics:
            score, of = (_text(r.metrics[metric]) for r in (row, whole))
            line = dict(
                size='x'.join(map(str, row.input_size)),
                precision=row.precision,
                stitch=str(row.id),
                kind=row.kind,
                budget=['100%', *budgets][row.id] if budgets else '',
                route=row.route,
                gflops=_text(row.flops / 1e9),
                ms='' if row.latency is None else _text(row.latency),
                metric=metric,
                score=score,
                share=_text(100 * float(score) / float(of)),
            )
            lines.append(about | line)
    return lines


def _text(value: float) -> str:
    return f'{value:.6g}'


def write_lines(
    lines: Sequence[dict[str, str]],
    file: Path | None = None,
    more: Sequence[str] = (),
) -> None:
    """Write lines in place of those of their runs, sorted by run.

    ``more`` are fields after those of every table.
    """
    new, file = {line['run'] for line in lines}, file or FILE
    known = read_lines(file=file) if file.is_file() else []
    kept = [line for line in known if line['run'] not in new]
    with atomic_path(file) as path, path.open('w', newline='') as table:
        writer = csv.DictWriter(table, (*FIELDS, *more), lineterminator='\n')
        writer.writeheader()
        writer.writerows(sorted([*kept, *lines], key=lambda line: line['run']))


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__)
    add = parser.add_argument
    add('results', help='stitches.json of tools/test.py, or results.json of a bundle')
    for name in ABOUT:
        add(f'--{name}', required=True)
    words = 'page and heading below which the commands stand, PAGE.md#HEADING'
    add('--commands', required=True, help=words)
    words = 'budgets that were asked for, such as 75%% 50%% (default: no budgets)'
    add('--budgets', nargs='+', default=[], help=words)
    words = 'metrics to keep (default: the one that ranks the stitches)'
    add('--metrics', nargs='+', help=words)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    table = StitchTable.read(args.results)
    right = re.fullmatch(r'\S+\.md#\S+', args.commands)
    check(right, '--commands', args.commands, 'PAGE.md#HEADING')
    about = {name: getattr(args, name) for name in (*ABOUT, 'commands')}
    lines = lines_of(table, args.metrics or [table.metric], args.budgets, **about)
    write_lines(lines)
    print(f'{FILE}: {len(lines)} lines of {args.run}')


if __name__ == '__main__':
    run_command(main)
