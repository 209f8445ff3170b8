"""Compare the fronts of models: ``tools/analysis_tools/compare_fronts.py A=a.json``.

Every model is NAME=RESULTS, where RESULTS is a ``stitches.json`` of ``tools/test.py``
with ``per_image.npz`` beside it. Commas separate the seeds of a model. Plus signs merge
separate models into one set to choose from: ``alone=fast.json+slow.json``. In
``test.json@val.json``, results on other images choose the best stitch of each budget.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from snnet_mm.stitching import UNITS, StitchTable
from snnet_mm.stitching.routes import ANCHOR_KIND
from snnet_mm.utils import ToolParser, check, run_command, write_json

if TYPE_CHECKING:
    from snnet_mm.evaluation.image_scores import ImageScores

Array = NDArray[np.float64]
NUM_BUDGETS = 13


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.split('\n\n')[0])
    add = parser.add_argument
    add('models', nargs='+', metavar='NAME=RESULTS', help='models, see above')
    what = 'model to subtract from all others (default: the first)'
    baseline = parser.add_mutually_exclusive_group()
    baseline.add_argument('--baseline', help=what)
    what = 'subtract from each model the one before it'
    baseline.add_argument('--successive', action='store_true', help=what)
    add('--cost', choices=UNITS, default='flops', help='cost that budgets limit')
    what = 'costs.json of stitch_table.py with measured costs of all models'
    add('--costs', help=what)
    what = 'metric to compare by (default: the metric of the results)'
    add('--metric', help=what)
    add('--resamples', type=int, default=1000, help='bootstrap resamples of the images')
    what = 'output files, without an extension (default: fronts beside the results)'
    add('--out', type=Path, help=what)
    args = parser.parse_args()
    check(args.resamples >= 100, '--resamples', args.resamples, '100 or more')
    return args


@dataclass(frozen=True)
class Run:
    """Costs and scores of one trained model, or of several separate models.

    ``sign`` is -1 if lower scores are better; ``anchors`` says which stitches are
    anchors, ``routes`` what they run. ``choosing`` has their scores on other images,
    if those choose the best stitch of each budget.
    """

    costs: Array
    images: ImageScores
    sign: int
    anchors: NDArray[np.bool_]
    routes: tuple[str, ...]
    choosing: Array | None = None

    @classmethod
    def read(cls, file: str, args: argparse.Namespace) -> Run:
        """Read test results with their per-image statistics, and those that choose."""
        from snnet_mm.evaluation.image_scores import ImageScores

        file, _, other = file.partition('@')
        results = StitchTable.read(file).ranked_by(args.metric)
        if args.costs is not None:
            results = StitchTable.merge(results, StitchTable.read(args.costs))
        folder = Path(file).resolve().parent  # per_image.npz is beside a link's target
        images = ImageScores.read(folder / 'per_image.npz', results)
        expected = f'{results.metric}, which ranks the results'
        same = images.metric == results.metric
        check(same, 'per-image statistics', images.metric, expected)
        known, column = results.scores(), results.column(args.cost)
        ids = [i for i in images.ids if i in known]
        rows = [images.ids.index(i) for i in ids]
        above, below = images.numerators[rows], images.denominators[rows]
        images = replace(images, ids=tuple(ids), numerators=above, denominators=below)
        by_id = {row.id: row for row in results.rows}
        choosing = None
        if other:
            scores = StitchTable.read(other).ranked_by(args.metric).scores()
            missing = [i for i in ids if i not in scores]
            check(not missing, 'argument: models', other, f'stitches {missing}, too')
            choosing = np.array([scores[i] for i in ids])
        return cls(
            np.array([column[i] for i in ids]) / UNITS[args.cost].factor,
            images,
            1 if results.higher_is_better else -1,
            np.array([by_id[i].kind == ANCHOR_KIND for i in ids]),
            tuple(by_id[i].route for i in ids),
            choosing,
        )

    @classmethod
    def joined(cls, runs: Sequence[Run]) -> Run:
        """Merge runs on the same images into one set to choose from."""
        parts, signs = [run.images for run in runs], {run.sign for run in runs}
        metrics = {part.metric for part in parts}
        expected = 'the same metric in all results'
        check(len(metrics) == 1, '--metric', sorted(metrics), expected)
        expected = 'the same direction for all'
        check(len(signs) == 1, '--lower-is-better', parts[0].metric, expected)
        images = {(part.names, part.numerators.shape[1]) for part in parts}
        expected = 'results of the same images (per_image.npz)'
        check(len(images) == 1, 'test_dataloader', f'{len(images)} data sets', expected)
        choosing = [run.choosing for run in runs]
        given = sum(one is not None for one in choosing)
        expected = 'FILE@OTHER for all, or for none'
        check(given in (0, len(runs)), 'argument: models', f'{given} @', expected)
        return cls(
            np.concatenate([r.costs for r in runs]),
            parts[0].stack(parts),
            runs[0].sign,
            np.concatenate([r.anchors for r in runs]),
            tuple(route for r in runs for route in r.routes),
            np.concatenate(choosing) if given else None,
        )

    def best_within(self, budgets: Array, weights: Array) -> Array:
        """Return the best score ``(R, budgets)`` within each budget; NaN if none fits.

        ``weights`` of images have shape ``(R, N)``. Scores are negated if lower is
        better.
        """
        scores = self.sign * self.images.scores(weights)
        fits = self.costs <= budgets[:, None] * (1 + 1e-9)
        by = scores if self.choosing is None else self.sign * self.choosing[None]
        best = np.where(fits, by[:, None], -np.inf).argmax(axis=-1)
        found = scores[np.arange(len(scores))[:, None], best]
        return np.where(fits.any(axis=-1), found, np.nan)


@dataclass(frozen=True)
class Figure:
    """A figure of a front: mean over seeds, 95 % interval, and value per seed."""

    value: float
    low: float
    high: float
    seeds: tuple[float, ...]

    @classmethod
    def of(cls, rows: Array) -> Figure:
        """Summarise rows ``(seeds, 1 + resamples)``; column 0 is not resampled."""
        mean = rows.mean(axis=0)
        known = mean[1:][np.isfinite(mean[1:])]
        low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (np.nan,) * 2
        return cls(float(mean[0]), float(low), float(high), tuple(rows[:, 0].tolist()))

    def __str__(self) -> str:
        return f'{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]'


Figures = dict[str, dict[str, Figure]]


class FrontComparison:
    """Figures of the fronts of models that were tested on the same images.

    Each resample draws images with replacement. All models and seeds share the draws,
    so differences are paired. Figures are means over the seeds of a model.

    Args:
        models: Runs with different seeds, by model name.
        num_resamples: Number of bootstrap resamples.
        unit: Unit of the costs, in the names of figures.
    """

    def __init__(
        self,
        models: Mapping[str, Sequence[Run]],
        num_resamples: int,
        unit: str = UNITS['flops'].heading,
    ) -> None:
        from snnet_mm.evaluation.image_scores import resampled_images

        runs = [run for of_model in models.values() for run in of_model]
        every = Run.joined(runs)
        number = every.images.numerators.shape[1]
        drawn = resampled_images(number, num_resamples)
        self.weights = np.concatenate([np.ones((1, number)), drawn])
        self.models, self.high, self.unit = models, every.costs.max(), unit
        self.common = set.intersection(*(set(run.routes) for run in runs))
        self.low = max(run.costs.min() for run in runs)
        check(
            self.low < self.high, 'argument: costs', self.low, f'less than {self.high}'
        )
        (scores,) = every.sign * every.images.scores(self.weights[:1])
        alone = every.anchors if every.anchors.any() else slice(None)
        worst = scores[alone].min()
        margin = 5 if every.images.scale == 100 else abs(worst) / 20
        self.reference = 1.05 * self.high, worst - margin

    def figures(self) -> Figures:
        """Return all figures by model and figure name."""
        return {
            name: {key: Figure.of(rows) for key, rows in found.items()}
            for name, found in self._rows.items()
        }

    def differences(self, baseline: str | None) -> Figures:
        """Return the paired differences of all other models to ``baseline``.

        With None, those of each model to the one before it.
        """
        names = list(self.models)
        if baseline is None:
            pairs = list(pairwise(names))
        else:
            check(baseline in names, '--baseline', baseline, names)
            pairs = [(baseline, name) for name in names if name != baseline]
        return {
            name: {
                key: Figure.of(rows - self._rows[base][key].mean(axis=0))
                for key, rows in self._rows[name].items()
            }
            for base, name in pairs
        }

    def steps(self, name: str) -> tuple[Array, Array]:
        """Return the costs of a model and the best score within each of them.

        Costs have shape ``(n,)``. Scores ``(3, n)`` are the value and both bounds of
        its 95 % interval, with the sign of the metric.
        """
        runs = self.models[name]
        costs = np.unique(np.concatenate([run.costs for run in runs]))
        rows = np.mean([r.best_within(costs, self.weights) for r in runs], axis=0)
        bounds = np.nanpercentile(rows[1:], [2.5, 97.5], axis=0)
        return costs, runs[0].sign * np.stack([rows[0], *bounds])

    @cached_property
    def _rows(self) -> dict[str, dict[str, Array]]:
        """Rows ``(seeds, 1 + resamples)`` by model and figure name."""
        rows = {}
        for name, runs in self.models.items():
            of_runs = [self._rows_of_run(run) for run in runs]
            rows[name] = {k: np.stack([r[k] for r in of_runs]) for k in of_runs[0]}
        return rows

    def _rows_of_run(self, run: Run) -> dict[str, Array]:
        costs, (limit, floor) = np.sort(run.costs), self.reference
        best = run.best_within(costs, self.weights)
        # The best score within a budget, averaged over budgets.
        ends = np.clip([*costs, self.high], self.low, self.high)
        area = best @ np.diff(ends) / (self.high - self.low)
        volume = np.maximum(best - floor, 0) @ np.diff([*costs, limit]) / limit
        found = {'area under front': run.sign * area, 'hypervolume': volume}
        if len(self.common) > 1:
            of_each = run.images.scores(self.weights)
            columns = [i for i, route in enumerate(run.routes) if route in self.common]
            name = f'mean of the {len(self.common)} stitches of all models'
            found[name] = of_each[:, columns].mean(axis=-1)
        budgets = np.linspace(self.low, self.high, NUM_BUDGETS)
        columns = run.sign * run.best_within(budgets, self.weights).T
        for budget, column in zip(budgets, columns, strict=True):
            found[f'best within {budget:.4g} {self.unit}'] = column
        return found


def read_models(args: argparse.Namespace) -> dict[str, list[Run]]:
    models = {}
    for model in args.models:
        name, separator, files = model.partition('=')
        given = separator and files and name not in models
        check(given, 'argument: models', model, 'NAME=RESULTS, each name once')
        models[name] = [
            Run.joined([Run.read(file, args) for file in seed.split('+')])
            for seed in files.split(',')
        ]
    return models


def draw(comparison: FrontComparison, path: Path, heading: str) -> None:
    """Plot the best score within each cost, with its 95 % interval."""
    from snnet_mm.evaluation.pictures.figures import new_figure, save_figure

    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    for name in comparison.models:
        costs, (value, low, high) = comparison.steps(name)
        costs = [*costs, 1.02 * comparison.high]
        value, low, high = ([*x, x[-1]] for x in (value, low, high))
        (line,) = axes.step(costs, value, where='post', label=name)
        colour = line.get_color()
        axes.fill_between(costs, low, high, step='post', color=colour, alpha=0.15, lw=0)
    axes.set_xlabel(heading)
    axes.set_ylabel(f'best {next(iter(comparison.models.values()))[0].images.metric}')
    axes.legend(title='95 % over images')
    axes.grid(alpha=0.3)
    save_figure(figure, path, dpi=150)


def print_table(title: str, figures: Figures) -> None:
    table = Table('figure', *figures, title=title)
    for key in next(iter(figures.values())):
        table.add_row(key, *(str(found[key]) for found in figures.values()))
    Console().print(table)


def as_plain(figures: Figures) -> dict:
    return {m: {k: asdict(f) for k, f in of.items()} for m, of in figures.items()}


def main() -> None:
    args = parse_args()
    heading = UNITS[args.cost].heading
    comparison = FrontComparison(read_models(args), args.resamples, heading)
    figures = comparison.figures()
    metric = next(iter(comparison.models.values()))[0].images.metric
    print_table(f'Fronts, {metric} over {heading}', figures)
    report = dict(costs=heading, figures=as_plain(figures))
    if len(figures) > 1:
        baseline = None if args.successive else args.baseline or next(iter(figures))
        found = comparison.differences(baseline)
        print_table(f'Differences to {baseline or "the model before"}', found)
        report |= dict(baseline=baseline, differences=as_plain(found))
    first = re.split('[,+@]', args.models[0].partition('=')[2])[0]
    out = args.out or Path(first).with_name('fronts')
    name = out.name.removesuffix('.json').removesuffix('.png')
    files = [out.with_name(f'{name}{suffix}') for suffix in ('.json', '.png')]
    write_json(files[0], report)
    draw(comparison, files[1], heading)
    print(f'Wrote {files[0]} and {files[1]}')


if __name__ == '__main__':
    run_command(main)
