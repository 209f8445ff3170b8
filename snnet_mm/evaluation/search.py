"""The best stitches for all budgets, found by evaluating few of them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import numpy as np
from mmengine.dist import broadcast_object_list

from snnet_mm.stitching import (
    CostTable,
    Position,
    Stitch,
    StitchingSpace,
    StitchResults,
    prior_scores,
    split_cost_range,
)
from snnet_mm.utils import check, is_whole

# Set on the authors' figures for ADE20K and ImageNet; see docs/choosing.md.
PER_ROUND = 3  # stitches that share a pass over the data
NUM_GROUPS = 12  # equal parts of the cost range; every second one gives a first stitch
LENGTH, LINEAR, NOISE = 1.5, 0.03, 0.05  # of the kernel, for standardised features
OPTIMISM = 0.1  # standard deviations that a stitch is hoped to be above its prediction
NO_CHANGE = 0.5  # relative depth of a change that a route has not


class StitchSearch:
    """Chooses which stitches to evaluate, and predicts the others.

    A Gaussian process over :func:`route_features` learns the ranking metric from the
    stitches evaluated so far. The next one is that with the largest expected gain over
    the best evaluated one of its cost. Nothing is random.

    Args:
        space: The stitching space.
        costs: Costs of all its stitches.
        screened: Results of all stitches on a few images, it begins by; by default
            :func:`prior_scores` guesses, where the space has a prior.
    """

    def __init__(
        self,
        space: StitchingSpace,
        costs: CostTable,
        screened: StitchResults | None = None,
    ) -> None:
        self.space, self.costs, self.flops = space, costs, costs.column('flops')
        guess = {} if screened is None else _signed(screened)
        if screened is None and space.has_prior:
            guess = prior_scores(space, self.flops)
        worst = min(guess.values(), default=0)
        self.guess = {i: guess.get(i, worst) for i in space.ids}
        self._features = route_features(space, self.flops, self.guess)
        self._rows = {i: row for row, i in enumerate(space.ids)}

    def first(self, number: int) -> list[int]:
        """At most so many: the anchors, the best guess of every second cost group."""
        groups = split_cost_range(self.flops, NUM_GROUPS)[::2]
        # Equally good stitches are the better the cheaper they are.
        rank = {i: (self.guess[i], -self.flops[i], -i) for i in self.space.ids}
        best = [max(ids, key=rank.get) for ids in groups]
        return list(dict.fromkeys((*self.space.anchor_ids, *best)))[:number]

    def next(self, results: StitchResults, number: int = PER_ROUND) -> list[int]:
        """The stitches to evaluate together next.

        Every one is chosen as if those before it had been evaluated and were as good as
        predicted.
        """
        scores = _signed(results)
        tried, chosen = {r.id for r in results.stitches}, []
        while len(chosen) < number and len(tried) < len(self.space):
            mean, deviation = self._predict(scores)
            hoped = mean + OPTIMISM * deviation
            left = [i for i in self.space.ids if i not in tried]
            gains = {i: hoped[self._rows[i]] - self._best(scores, i) for i in left}
            chosen.append(max(left, key=gains.get))
            scores[chosen[-1]] = mean[self._rows[chosen[-1]]]
            tried.add(chosen[-1])
        return chosen

    def with_predictions(self, results: StitchResults) -> StitchResults:
        """Results of all stitches: those that were not evaluated are predicted."""
        mean, deviation = self._predict(_signed(results))
        sign = 1 if results.higher_is_better else -1
        unknown = dict.fromkeys(results.stitches[0].metrics, math.nan)
        scores = {
            i: unknown | {results.metric: sign * mean[row]}
            for i, row in self._rows.items()
        }
        predicted = StitchResults.collect(self.space, self.costs, scores).stitches
        known = {r.id: r for r in results.stitches}
        rows = [
            known.get(r.id, replace(r, deviation=float(d)))
            for r, d in zip(predicted, deviation, strict=True)
        ]
        return replace(results, stitches=rows)

    def compare(self, first: Sequence[int], number: int) -> str:
        """Say how many blocks the search of so many stitches runs, and one pass."""
        length = fmean(blocks_run([stitch]) for stitch in self.space)
        run = blocks_run(self.space[i] for i in first)
        run += round((number - len(first)) * length)
        together = blocks_run(self.space)
        words = f'The search runs about {run} blocks per image; one pass with all '
        words += f'{len(self.space)} stitches runs {together}'
        as_fast = '. --stitch-id all is as fast and predicts nothing'
        return words + as_fast * (run >= together)

    def _best(self, scores: Mapping[int, float], stitch_id: int) -> float:
        """The best score of no higher cost than that of a stitch, else the worst."""
        cost = self.flops[stitch_id]
        cheaper = [s for i, s in scores.items() if self.flops[i] <= cost]
        return max(cheaper, default=min(scores.values()))

    def _predict(self, scores: Mapping[int, float]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the scores of all stitches."""
        # Imported here, for only searches need scikit-learn, which takes a second.
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct

        kernel = RBF(LENGTH) + ConstantKernel(LINEAR) * DotProduct()
        settings = dict(alpha=NOISE, normalize_y=True, optimizer=None)
        process = GaussianProcessRegressor(kernel, **settings)
        rows = [self._rows[i] for i in scores]
        process.fit(self._features[rows], list(scores.values()))
        return process.predict(self._features, return_std=True)


def check_number(space: StitchingSpace, number: int | None, searched: bool) -> None:
    """Refuse a number of stitches to evaluate that no search can."""
    least, most = len(space.anchor_ids), len(space)
    ok = searched and is_whole(number, least) and number <= most
    allowed = f'{least} (the anchors) to {most} (all), with --stitch-id search'
    check(ok, 'test_cfg.evaluate', number, f'{allowed} (option: --evaluate)')


def run_search(
    evaluate: Callable[[list[int]], StitchResults],
    search: StitchSearch,
    number: int,
    say: Callable[[str], object] = lambda words: None,
) -> StitchResults:
    """Evaluate so many stitches, few at a time, and predict the others.

    ``evaluate`` gives the results of stitches, most of which it gave before.
    """
    new, tried = search.first(number), []
    say(search.compare(new, number))
    while new:
        tried += new
        results = evaluate(tried)
        new = search.next(results, min(PER_ROUND, number - len(tried)))
        broadcast_object_list(new)  # processors may round differently
    return search.with_predictions(results)


def _signed(results: StitchResults) -> dict[int, float]:
    """Scores, higher for better stitches."""
    sign = 1 if results.higher_is_better else -1
    return {i: sign * score for i, score in results.scores().items()}


def route_features(
    space: StitchingSpace, flops: Mapping[int, float], guess: Mapping[int, float]
) -> np.ndarray:
    """Standardised features of all routes, ``(number of stitches, features)``.

    They are the place in the range of costs and its square; the relative depth of the
    first change into a slower anchor, and into a faster one; the number of changes; the
    first and the last anchor; the share of blocks that are not the slowest anchor's;
    where the slowest anchor is entered and left last; and the guess. Features that are
    the same for all stitches of a space are 0.
    """
    low, high = min(flops.values()), max(flops.values())
    rows = []
    for stitch in space:
        place = (flops[stitch.id] - low) / ((high - low) or 1)
        route = _of_route(stitch, space.depths)
        rows.append([place, place**2, *route, guess[stitch.id]])
    features = np.array(rows, float)
    spread = features.std(0)
    return (features - features.mean(0)) / np.where(spread > 0, spread, 1)


def _of_route(stitch: Stitch, depths: Sequence[int]) -> list[float]:
    segments, slowest = stitch.segments, len(depths) - 1
    into = {True: NO_CHANGE, False: NO_CHANGE}
    for before, after in reversed([*pairwise(segments)]):
        into[after.anchor > before.anchor] = before.end / depths[before.anchor]
    slow = [s for s in segments if s.anchor == slowest]
    run = (slow[0].begin / depths[-1], slow[-1].end / depths[-1]) if slow else (1, 1)
    share = sum(s.end - s.begin for s in slow) / sum(s.end - s.begin for s in segments)
    ends = segments[0].anchor, segments[-1].anchor
    return [*into.values(), len(segments) - 1, *ends, 1 - share, *run]


def blocks_run(stitches: Iterable[Stitch]) -> int:
    """Number of blocks that one pass with these stitches runs per image."""
    routes = [stitch.steps for stitch in stitches]
    prefixes = {route[:i] for route in routes for i in range(1, len(route) + 1)}
    blocks = [p for p in prefixes if isinstance(p[-1], Position) and p[-1].block >= 0]
    return len(blocks)
