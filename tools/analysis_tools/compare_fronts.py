"""Compare the fronts of models: ``tools/analysis_tools/compare_fronts.py A=a.json``.

Every model is NAME=RESULTS, where RESULTS is a ``stitches.json`` of ``tools/test.py``
with ``per_image.npz`` beside it. Commas separate the seeds of a model. Plus signs merge
separate models into one set to choose from: ``alone=fast.json+slow.json``.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from snnet_mm.stitching import UNITS, StitchTable
from snnet_mm.utils import ToolParser, check, run_command, write_json

if TYPE_CHECKING:
    from front_comparison import FrontComparison, Run


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.split('\n\n')[0])
    add = parser.add_argument
    add('models', nargs='+', metavar='NAME=RESULTS', help='see above')
    what = 'model that is subtracted from all others (default: the first)'
    add('--baseline', help=what)
    add('--cost', choices=UNITS, default='flops', help='what budgets are of')
    what = 'a costs.json of stitch_table.py with measured costs, for all models'
    add('--costs', help=what)
    what = 'metric to compare by (default: the metric of the results)'
    add('--metric', help=what)
    add('--resamples', type=int, default=1000, help='bootstrap resamples of the images')
    what = 'files to write, the ending aside (default: fronts)'
    add('--out', type=Path, default=Path('fronts'), help=what)
    args = parser.parse_args()
    check(args.resamples >= 100, '--resamples', args.resamples, '100 or more')
    return args


def read_run(files: str, args: argparse.Namespace) -> Run:
    from front_comparison import Run

    from snnet_mm.evaluation.image_scores import ImageScores

    runs = []
    for file in files.split('+'):
        results = StitchTable.read(file).ranked_by(args.metric)
        if args.costs is not None:
            results = StitchTable.merge(results, StitchTable.read(args.costs))
        folder = Path(file).resolve().parent  # per_image.npz is beside a link's target
        images = ImageScores.read(folder / 'per_image.npz', results)
        runs.append(Run.of(results, images, args.cost))
    return Run.joined(runs)


def read_models(args: argparse.Namespace) -> dict[str, list[Run]]:
    models = {}
    for model in args.models:
        name, separator, files = model.partition('=')
        given = separator and files and name not in models
        check(given, 'models', model, 'NAME=RESULTS, each name once')
        models[name] = [read_run(seed, args) for seed in files.split(',')]
    return models


def draw(comparison: FrontComparison, path: Path, args: argparse.Namespace) -> None:
    """Plot the best score within each cost, with its 95 % interval."""
    from snnet_mm.evaluation.pictures.figures import new_figure, save_figure

    unit = UNITS[args.cost]
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    for name in comparison.models:
        costs, (value, low, high) = comparison.steps(name)
        costs = [*costs / unit.factor, 1.02 * comparison.high / unit.factor]
        value, low, high = ([*x, x[-1]] for x in (value, low, high))
        (line,) = axes.step(costs, value, where='post', label=name)
        colour = line.get_color()
        axes.fill_between(costs, low, high, step='post', color=colour, alpha=0.15, lw=0)
    axes.set_xlabel(unit.heading)
    axes.set_ylabel(f'best {next(iter(comparison.models.values()))[0].images.metric}')
    axes.legend(title='95 % over images')
    axes.grid(alpha=0.3)
    save_figure(figure, path, dpi=150)


def as_plain(figures: dict) -> dict:
    return {m: {k: asdict(f) for k, f in of.items()} for m, of in figures.items()}


def print_table(title: str, figures: dict, unit: float) -> None:
    from front_comparison import BEST_WITHIN

    table = Table('figure', *figures, title=title)
    for key in next(iter(figures.values())):
        name = key
        if key.startswith(BEST_WITHIN):
            budget = float(key.removeprefix(BEST_WITHIN)) / unit
            name = f'{BEST_WITHIN} {budget:.3g}'
        table.add_row(name, *(str(found[key]) for found in figures.values()))
    Console().print(table)


def main() -> None:
    args = parse_args()

    from front_comparison import FrontComparison

    comparison = FrontComparison(read_models(args), args.resamples)
    figures, unit = comparison.figures(), UNITS[args.cost]
    print_table(f'Fronts, costs in {unit.heading}', figures, unit.factor)
    report = dict(figures=as_plain(figures))
    if len(figures) > 1:
        baseline = args.baseline or next(iter(figures))
        found = comparison.differences(baseline)
        print_table(f'Differences to {baseline}', found, unit.factor)
        report |= dict(baseline=baseline, differences=as_plain(found))
    name = args.out.name.removesuffix('.json').removesuffix('.png')
    files = [args.out.with_name(f'{name}{suffix}') for suffix in ('.json', '.png')]
    write_json(files[0], report)
    draw(comparison, files[1], args)
    print(f'Wrote {files[0]} and {files[1]}')


if __name__ == '__main__':
    run_command(main)
