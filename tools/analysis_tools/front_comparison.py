"""Figures of Pareto fronts and their differences, bootstrapped over images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from snnet_mm.evaluation.image_scores import Array, ImageScores, resampled_images
from snnet_mm.stitching import StitchTable
from snnet_mm.stitching.routes import ANCHOR_KIND
from snnet_mm.utils import check

NUM_BUDGETS = 13
BEST_WITHIN = 'best within'


@dataclass(frozen=True)
class Run:
    """Costs and scores of one trained model, or of several separate models."""

    costs: Array
    images: ImageScores
    sign: int
    anchors: Array  # whether each stitch is an anchor

    @classmethod
    def of(cls, results: StitchTable, images: ImageScores, cost: str = 'flops') -> Run:
        """Combine test results with their per-image statistics."""
        known, column = results.scores(), results.column(cost)
        ids = [i for i in images.ids if i in known]
        rows = [images.ids.index(i) for i in ids]
        same, wanted = images.metric == results.metric, f'{results.metric}, which ranks'
        check(same, 'per-image statistics', images.metric, f'{wanted} the results')
        above, below = images.numerators[rows], images.denominators[rows]
        chosen = replace(images, ids=tuple(ids), numerators=above, denominators=below)
        kinds = {row.id: row.kind for row in results.rows}
        return cls(
            np.array([column[i] for i in ids], float),
            chosen,
            1 if results.higher_is_better else -1,
            np.array([kinds[i] == ANCHOR_KIND for i in ids]),
        )

    @classmethod
    def joined(cls, runs: Sequence[Run]) -> Run:
        """Merge runs on the same images into one set to choose from."""
        images = ImageScores.stack([r.images for r in runs])
        one = len({run.sign for run in runs}) == 1
        check(one, '--lower-is-better', images.metric, 'one direction for all')
        return cls(
            np.concatenate([r.costs for r in runs]),
            images,
            runs[0].sign,
            np.concatenate([r.anchors for r in runs]),
        )

    def scores(self, weights: Array) -> Array:
        """Return scores ``(R, stitches)``, negated if lower is better."""
        return self.sign * self.images.scores(weights)


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


class FrontComparison:
    """Figures of the fronts of models that were tested on the same images.

    Each resample draws images with replacement. All models and seeds share the draws,
    so differences are paired. Figures are means over the seeds of a model.

    Args:
        models: Runs with different seeds, by model name.
        num_resamples: Number of bootstrap resamples.
    """

    def __init__(self, models: Mapping[str, Sequence[Run]], num_resamples: int) -> None:
        runs = [run for of_model in models.values() for run in of_model]
        every = Run.joined(runs)
        number, rng = every.images.numerators.shape[1], np.random.default_rng(0)
        self.weights = resampled_images(number, num_resamples, rng)
        self.models, self.low = models, max(run.costs.min() for run in runs)
        self.high = max(run.costs.max() for run in runs)
        check(self.low < self.high, 'costs', self.low, f'less than {self.high}')
        self.budgets = np.linspace(self.low, self.high, NUM_BUDGETS)
        (scores,) = every.scores(self.weights[:1])
        alone = every.anchors if every.anchors.any() else np.full(len(scores), True)
        worst = scores[alone].min()
        margin = 5 if every.images.scale == 100 else abs(worst) / 20
        self.reference = 1.05 * self.high, worst - margin

    def figures(self) -> dict[str, dict[str, Figure]]:
        """Return all figures by model and figure name."""
        return {
            name: {key: Figure.of(rows) for key, rows in found.items()}
            for name, found in self._rows.items()
        }

    def differences(self, baseline: str) -> dict[str, dict[str, Figure]]:
        """Return the paired differences of all other models to ``baseline``."""
        check(baseline in self.models, '--baseline', baseline, list(self.models))
        base = {key: rows.mean(axis=0) for key, rows in self._rows[baseline].items()}
        return {
            name: {key: Figure.of(rows - base[key]) for key, rows in found.items()}
            for name, found in self._rows.items()
            if name != baseline
        }

    def steps(self, name: str) -> tuple[Array, Array]:
        """Return the costs of a model and the best score within each of them.

        Costs have shape ``(n,)``. Scores ``(3, n)`` are the value and both bounds of
        its 95 % interval, with the sign of the metric.
        """
        runs = self.models[name]
        costs = np.unique(np.concatenate([run.costs for run in runs]))
        rows = [_affordable(r.costs, r.scores(self.weights), costs) for r in runs]
        rows = np.mean(rows, axis=0)
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
        scores, sign = run.scores(self.weights), run.sign
        best = _affordable(run.costs, scores, self.budgets)
        found = {
            'area under front': sign * self._area(run.costs, scores),
            'hypervolume': self._hypervolume(run.costs, scores),
        }
        for budget, column in zip(self.budgets, best.T, strict=True):
            found[f'{BEST_WITHIN} {budget:.6g}'] = sign * column
        return found

    def _area(self, costs: Array, scores: Array) -> Array:
        """Return the best score within a budget, averaged over budgets."""
        order = np.argsort(costs, kind='stable')
        best = np.maximum.accumulate(scores[:, order], axis=1)
        ends = np.clip([*costs[order], self.high], self.low, self.high)
        return best @ np.diff(ends) / (self.high - self.low)

    def _hypervolume(self, costs: Array, scores: Array) -> Array:
        """Return the area between front and reference, over the reference cost."""
        order, (limit, floor) = np.argsort(costs, kind='stable'), self.reference
        best = np.maximum.accumulate(scores[:, order], axis=1)
        return np.maximum(best - floor, 0) @ np.diff([*costs[order], limit]) / limit


def _affordable(costs: Array, scores: Array, budgets: Array) -> Array:
    """Return the best score ``(R, budgets)`` within each budget; NaN if none fits."""
    fits = costs <= budgets[:, None] * (1 + 1e-9)
    best = np.where(fits, scores[:, None], -np.inf).max(axis=-1)
    return np.where(np.isinf(best), np.nan, best)
