"""Plot metric over cost: ``tools/analysis_tools/plot_pareto.py stitches.json``."""

from __future__ import annotations

import argparse
import csv
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from snnet_mm.stitching import UNITS, StitchRow, StitchTable
from snnet_mm.utils import ToolParser, check_file, refusal, run_command

if TYPE_CHECKING:
    from snnet_mm.evaluation import Baseline


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    what = """stitches.json of tools/test.py, also of several sizes or precisions, and
        costs.json of stitch_table.py with measured costs"""
    add('results', nargs='+', help=what)
    what = 'cost on the horizontal axis (default: flops)'
    add('--cost', choices=UNITS, default='flops', help=what)
    point = dict(nargs=3, metavar=('LABEL', 'COST', 'METRIC'))
    what = 'extra point, such as an anchor trained alone; COST in the unit of the axis'
    add('--baseline', action='append', default=[], **point, help=what)
    what = 'extra points from a test, such as results.json of an anchor alone'
    file = dict(nargs=2, metavar=('LABEL', 'FILE'))
    add('--baseline-results', action='append', default=[], **file, help=what)
    other = dict(nargs=2, metavar=('LABEL', 'FILE'))
    what = """also draw the front of another model: its results, or a .csv file with a
        line 'cost,metric' per point, in the units of the axes"""
    add('--compare', action='append', default=[], **other, help=what)
    add('--metric', help='metric to draw (default: the metric of the results)')
    what = """metrics where lower is better, or 'none'; required for metrics whose
        direction is unknown"""
    add('--lower-is-better', nargs='+', metavar='METRIC', help=what)
    add('--title', help='title of the figure')
    what = 'PNG or SVG to write (default: pareto.png beside the results)'
    add('--out', type=Path, help=what)
    return parser.parse_args()


def read_results(path: str, args: argparse.Namespace) -> StitchTable:
    return StitchTable.read(path).ranked_by(args.metric, args.lower_is_better)


def parse_baseline(values: list[str], unit: float) -> Baseline:
    from snnet_mm.evaluation import Baseline

    label, cost, score = values
    try:
        return Baseline(label, float(cost) * unit, float(score))
    except ValueError:
        expected = "a label, a cost and a metric, such as 'fast alone' 0.56 29.8"
        raise refusal('--baseline', values, expected) from None


def read_other(path: str, args: argparse.Namespace, drawn: StitchTable) -> StitchTable:
    """Return the results of another model; of a CSV file, as rows of ``drawn``."""
    if not path.lower().endswith('.csv'):
        return read_results(path, args)
    check_file(path, 'option: --compare')
    unit, rows = UNITS[args.cost], []
    with open(path, newline='', encoding='utf-8-sig') as file:
        for cells in filter(None, reader := csv.reader(file)):
            number = reader.line_num
            try:
                cost, score = map(float, cells)
            except ValueError:
                if number == 1 and len(cells) == 2:  # names of the columns
                    continue
                expected = f'a {unit.heading} and a {drawn.metric} per line, such as '
                expected += f'12.5,44.1, below names of columns; line {number} is '
                expected += repr(','.join(cells))
                raise refusal('--compare', path, expected) from None
            about = dict(kind='', route='', flops=0, params=None)
            about |= {args.cost: cost * unit.factor, 'metrics': {drawn.metric: score}}
            rows.append(StitchRow(number, input_size=drawn.input_size, **about))
    if not rows:
        raise refusal('--compare', path, 'a file with lines of cost,metric')
    return replace(drawn, rows=rows)


def main() -> None:
    args = parse_args()

    from snnet_mm.evaluation import Baseline, plot_pareto

    results = StitchTable.merge(*(read_results(path, args) for path in args.results))
    args.metric = results.metric  # other files may be ranked by another one
    unit = UNITS[args.cost].factor
    baselines = [parse_baseline(values, unit) for values in args.baseline]
    for label, file in args.baseline_results:
        tested = read_results(file, args)
        column = tested.column(args.cost)
        baselines += [Baseline(label, column[i], v) for i, v in tested.scores().items()]
    drawn = dict(
        cost=args.cost,
        baselines=baselines,
        others=[(label, read_other(f, args, results)) for label, f in args.compare],
        title=args.title,
    )
    out = args.out or Path(args.results[0]).with_name('pareto.png')
    plot_pareto(results, out, **drawn)
    print(f'Wrote {out}')


if __name__ == '__main__':
    run_command(main)
