"""Comparison of fronts: figures of each, with intervals by a bootstrap over images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from snnet_mm.stitching import StitchResults, pareto_front
from snnet_mm.stitching.routes import ANCHOR_KIND
from snnet_mm.utils import check

from .image_scores import Array, ImageScores, resampled_images

NUM_BUDGETS = 13
BEST_WITHIN = 'best within'


@dataclass(frozen=True)
class Run:
    """Costs and scores of one trained model, or of several models alone."""

    costs: Array
    images: ImageScores
    sign: int
    anchors: Array  # whether a stitch is an anchor

    @classmethod
    def of(
        cls, results: StitchResults, images: ImageScores, cost: str = 'flops'
    ) -> Run:
        """Join results with their per-image statistics."""
        known, column = results.scores(), results.column(cost)
        ids = [i for i in images.ids if i in known]
        rows = [images.ids.index(i) for i in ids]
        same, wanted = images.metric == results.metric, f'{results.metric}, which ranks'
        check(same, 'per-image statistics', images.metric, f'{wanted} the results')
        parts = images.numerators[rows], images.denominators[rows]
        chosen = ImageScores(images.metric, tuple(ids), *parts, images.scale)
        kinds = {r.id: r.kind for r in results.stitches}
        return cls(
            np.array([column[i] for i in ids], float),
            chosen,
            1 if results.higher_is_better else -1,
            np.array([kinds[i] == ANCHOR_KIND for i in ids]),
        )

    @classmethod
    def joined(cls, runs: Sequence[Run]) -> Run:
        """Return several models on the same images as one set to choose from."""
        return cls(
            np.concatenate([r.costs for r in runs]),
            ImageScores.stack([r.images for r in runs]),
            runs[0].sign,
            np.concatenate([r.anchors for r in runs]),
        )

    def scores(self, weights: Array) -> Array:
        """Return scores ``(R, stitches)``, better when higher."""
        return self.sign * self.images.scores(weights)


@dataclass(frozen=True)
class Figure:
    """A figure of a front, its 95 % interval, and the figure of every seed."""

    value: float
    low: float
    high: float
    seeds: tuple[float, ...]

    @classmethod
    def of(cls, rows: Array) -> Figure:
        """Join figures ``(seeds, 1 + resamples)``, the first without resampling."""
        mean = rows.mean(axis=0)
        known = mean[1:][np.isfinite(mean[1:])]
        low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (np.nan,) * 2
        return cls(float(mean[0]), float(low), float(high), tuple(rows[:, 0].tolist()))

    def __str__(self) -> str:
        return f'{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]'


class FrontComparison:
    """Figures of fronts of several models that were tested on the same images.

    Every resample draws images with replacement, the same ones for all models and
    seeds, so that differences are paired; figures are means over the seeds of a model.

    Args:
        models: Runs with different seeds, by the name of the model.
        num_resamples: Resamples of the images.
    """

    def __init__(self, models: Mapping[str, Sequence[Run]], num_resamples: int) -> None:
        runs = [run for of_model in models.values() for run in of_model]
        numbers = {run.images.numerators.shape[1] for run in runs}
        check(len(numbers) == 1, 'images', sorted(numbers), 'the same for all results')
        metrics = {(run.images.metric, run.sign) for run in runs}
        check(len(metrics) == 1, '--metric', sorted(metrics), 'one metric for all')
        (number,), rng = numbers, np.random.default_rng(0)
        self.weights = resampled_images(number, num_resamples, rng)
        halves = np.tile(np.arange(number) % 2, (num_resamples, 1))
        self.halves = rng.permuted(halves, axis=1)
        self.models, self.low = models, max(run.costs.min() for run in runs)
        self.high = max(run.costs.max() for run in runs)
        check(self.low < self.high, 'costs', self.low, f'below {self.high}: no budgets')
        self.budgets = np.linspace(self.low, self.high, NUM_BUDGETS)
        every = Run.joined(runs)
        (scores,) = every.scores(self.weights[:1])
        alone = every.anchors if every.anchors.any() else np.full(len(scores), True)
        worst = scores[alone].min()
        margin = 5 if every.images.scale == 100 else abs(worst) / 20
        self.reference = 1.05 * self.high, worst - margin
        front = pareto_front(dict(enumerate(every.costs)), dict(enumerate(scores)))
        self.front = every.costs[front], scores[front]

    def figures(self) -> dict[str, dict[str, Figure]]:
        """Return all figures by model and name."""
        return {
            name: {key: Figure.of(rows) for key, rows in found.items()}
            for name, found in self._rows.items()
        }

    def differences(self, baseline: str) -> dict[str, dict[str, Figure]]:
        """Return the figures of all other models minus those of one, paired."""
        check(baseline in self.models, '--baseline', baseline, list(self.models))
        base = {key: rows.mean(axis=0) for key, rows in self._rows[baseline].items()}
        return {
            name: {key: Figure.of(rows - base[key]) for key, rows in found.items()}
            for name, found in self._rows.items()
            if name != baseline
        }

    def steps(self, name: str) -> tuple[Array, Array]:
        """Return the best affordable score at every cost of a front, and its interval.

        Costs ``(n,)``, and value, low and high ``(3, n)``, in the metric's own sign.
        """
        runs = self.models[name]
        costs = np.unique(np.concatenate([run.costs for run in runs]))
        rows = [_affordable(r.costs, r.scores(self.weights), costs) for r in runs]
        rows = np.mean(rows, axis=0)
        bounds = np.nanpercentile(rows[1:], [2.5, 97.5], axis=0)
        return costs, runs[0].sign * np.stack([rows[0], *bounds])

    @cached_property
    def _rows(self) -> dict[str, dict[str, Array]]:
        """Figures ``(seeds, 1 + resamples)`` by model and name."""
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
            'IGD+': self._igd_plus(run.costs, scores),
            **_correlations(run.costs, sign * scores),
        }
        for budget, column in zip(self.budgets, best.T, strict=True):
            found[f'{BEST_WITHIN} {budget:.6g}'] = sign * column
        return found | {
            'area, chosen on half of the images': sign * self._held_out_area(run)
        }

    def _held_out_area(self, run: Run) -> Array:
        """Choose stitches on a random half of the images, and score on the other."""
        area, resampled = [], self.weights[1:]
        for weights in (np.ones_like(resampled), resampled):
            halves = weights * self.halves, weights * (1 - self.halves)
            area.append(self._area(run.costs, *map(run.scores, halves)))
        # Without resampling one split says little: all of them do.
        return np.array([area[0].mean(), *area[1]])

    def _area(self, costs: Array, scores: Array, read: Array | None = None) -> Array:
        """Return the mean over budgets of the best affordable score."""
        order = np.argsort(costs, kind='stable')
        read = scores if read is None else read
        best = _running_best(scores[:, order], read[:, order])
        ends = np.clip([*costs[order], self.high], self.low, self.high)
        return best @ np.diff(ends) / (self.high - self.low)

    def _hypervolume(self, costs: Array, scores: Array) -> Array:
        """Return the area above the reference, per unit of cost."""
        order, (limit, floor) = np.argsort(costs, kind='stable'), self.reference
        best = np.maximum.accumulate(scores[:, order], axis=1)
        return np.maximum(best - floor, 0) @ np.diff([*costs[order], limit]) / limit

    def _igd_plus(self, costs: Array, scores: Array) -> Array:
        """Return the mean distance of the joint front to what dominates it here."""
        wanted_costs, wanted = self.front
        scale = np.ptp(wanted) or 1
        over = np.maximum(costs - wanted_costs[:, None], 0) / (self.high - self.low)
        under = np.maximum(wanted[:, None] - scores[:, None], 0) / scale
        return np.sqrt(over**2 + under**2).min(axis=-1).mean(axis=-1)


def _running_best(scores: Array, read: Array) -> Array:
    """Return, along the last axis, what is read of the best so far."""
    best, out = np.zeros(len(scores), int), np.empty_like(read)
    rows = np.arange(len(scores))
    for i in range(scores.shape[1]):
        best = np.where(scores[:, i] > scores[rows, best], i, best)
        out[:, i] = read[rows, best]
    return out


def _affordable(costs: Array, scores: Array, budgets: Array) -> Array:
    """Return the best score ``(R, budgets)`` within each budget; NaN where none is."""
    fits = costs <= budgets[:, None] * (1 + 1e-9)
    best = np.where(fits, scores[:, None], -np.inf).max(axis=-1)
    return np.where(np.isinf(best), np.nan, best)


def _correlations(costs: Array, scores: Array) -> dict[str, Array]:
    """Return the rank correlations of costs and rows of scores, NaN for two points."""
    from scipy.stats import kendalltau, spearmanr  # slow to import

    of, rows = {'Spearman': spearmanr, 'Kendall': kendalltau}, list(scores)
    if len(costs) < 3:
        return {name: np.full(len(rows), np.nan) for name in of}
    return {
        name: np.array([function(costs, row).statistic for row in rows])
        for name, function in of.items()
    }
