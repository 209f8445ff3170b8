"""Draw metric over cost: ``tools/analysis_tools/plot_pareto.py stitches.json``.

Writes a PNG, an SVG and a page that needs no other file, in which hovering a point
shows the stitch.
"""

import argparse
import json
from pathlib import Path

from snnet_mm.evaluation import Baseline, plot_pareto, write_pareto_page
from snnet_mm.evaluation.pictures.pareto_plot import cost_axis
from snnet_mm.stitching import CostTable, StitchResults, TwoWaySpace, read_published
from snnet_mm.stitching.cost_table import Cost

SUFFIXES = ('.png', '.svg', '.html')


def add_published(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        '--depths',
        nargs=2,
        type=int,
        metavar=('FAST', 'SLOW'),
        help='blocks of the anchors; says that the files are published figures',
    )
    group.add_argument(
        '--shape',
        nargs=2,
        type=int,
        default=(512, 512),
        metavar=('HEIGHT', 'WIDTH'),
        help='pixels that the FLOPs hold for (default: 512 512)',
    )


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        'results', help='a stitches.json of tools/test.py, or published figures'
    )
    parser.add_argument(
        '--cost',
        choices=Cost._fields,
        default='flops',
        help='what to draw the metric over (default: flops)',
    )
    parser.add_argument(
        '--costs', help='a costs.json of stitch_table.py with measured costs'
    )
    parser.add_argument(
        '--baseline',
        nargs=3,
        action='append',
        default=[],
        metavar=('LABEL', 'COST', 'METRIC'),
        help='a point to draw besides, such as an anchor trained alone; its cost is in '
        'the unit of the axis',
    )
    parser.add_argument(
        '--compare',
        nargs=2,
        action='append',
        default=[],
        metavar=('LABEL', 'FILE'),
        help='results of another model, whose front is drawn',
    )
    parser.add_argument(
        '--metric', help='the metric to draw (default: that of the results, or mIoU)'
    )
    parser.add_argument(
        '--lower-is-better', action='store_true', help='for metrics such as RMSE'
    )
    parser.add_argument('--title', help='heading')
    parser.add_argument(
        '--out',
        type=Path,
        help='files to write, the ending aside (default: pareto beside the results)',
    )
    add_published(parser.add_argument_group('published figures by stitch id'))
    return parser.parse_args()


def read_results(path: str, args: argparse.Namespace) -> StitchResults:
    if args.depths is not None:
        space, shape = TwoWaySpace(args.depths), tuple(args.shape)
        metric, better = args.metric or 'mIoU', not args.lower_is_better
        return read_published(path, space, shape, metric, better)
    results = StitchResults.read(path)
    if args.metric is None:
        return results
    return results.ranked_by(args.metric, False if args.lower_is_better else None)


def parse_baseline(values: list[str], unit: float) -> Baseline:
    label, cost, score = values
    try:
        return Baseline(label, float(cost) * unit, float(score))
    except ValueError:
        raise ValueError(
            f'--baseline {values}; allowed are a label, a cost and a metric, such as '
            "'fast alone' 0.56 29.8"
        ) from None


def main() -> None:
    args = parse_args()
    results, title = read_results(args.results, args), args.title
    if args.depths is not None and title is None:
        what = json.loads(Path(args.results).read_text(encoding='utf-8')).get('what')
        title = f'Published by the authors: {what}'
    if args.costs is not None:
        results = results.with_costs(CostTable.read(args.costs))
    _, unit = cost_axis(results, args.cost)
    drawn = dict(
        cost=args.cost,
        baselines=[parse_baseline(values, unit) for values in args.baseline],
        others=[(label, read_results(file, args)) for label, file in args.compare],
        title=title,
    )
    out = args.out or Path(args.results).with_name('pareto')
    paths = [out.with_name(out.name + suffix) for suffix in SUFFIXES]
    for path in paths[:2]:
        plot_pareto(results, path, **drawn)
    write_pareto_page(results, paths[2], **drawn)
    print('Wrote', ', '.join(map(str, paths)))


if __name__ == '__main__':
    main()
