"""Results of an evaluation: costs and metrics of every stitch."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

from snnet_mm.runtime.budgets import drop_nan, pareto_front
from snnet_mm.utils import check, is_number, is_whole, read_json, require, write_json

from .cost_table import (
    Cost,
    CostTable,
    Setup,
    check_rows,
    cost_column,
    read_header,
    split_cost_range,
)
from .metrics import (
    HIGHER,
    LOWER,
    NONE,
    key_metric,
    metric_directions,
    rank_correlation,
)
from .routes import ANCHOR_KIND
from .space import StitchingSpace

NUM_BUDGET_GROUPS = 10


class Variant(NamedTuple):
    """A stitch at an input size (height, width) and a precision."""

    id: int
    input_size: tuple[int, int]
    precision: str | None


class NoMetricsError(ValueError):
    """Raised if an evaluation returned no metric by which to rank stitches."""


@dataclass(frozen=True)
class StitchResult:
    """Costs and metrics of one stitch; see :class:`Stitch` and :class:`Cost`.

    ``num_images`` is the number of images evaluated, or None if unknown.
    """

    id: int
    kind: str
    route: str
    flops: int
    params: int | None
    metrics: Mapping[str, float]
    latency: float | None = None
    memory: int | None = None
    num_images: int | None = None


@dataclass(frozen=True)
class StitchResults:
    """Results of several stitches of one model.

    Args:
        stitches: One result per stitch, in the order of evaluation.
        metric: The metric that ranks the stitches.
        directions: Whether ``'higher'`` or ``'lower'`` is better, by metric. A metric
            without a direction cannot rank stitches.
        input_size: See :class:`CostTable`, also for ``space``, ``setup`` and ``scope``.
        data_size: Number of images in the whole data set, if fewer were evaluated.

    Examples:
        >>> StitchResults.read('work_dirs/elastic/stitches.json').front('latency')
    """

    stitches: Sequence[StitchResult]
    metric: str
    directions: Mapping[str, str] = field(repr=False)
    input_size: tuple[int, int]
    space: str | None = None
    setup: Setup | None = None
    scope: str | None = None
    data_size: int | None = None

    @classmethod
    def collect(
        cls,
        space: StitchingSpace,
        costs: CostTable,
        metrics: Mapping[int, Mapping[str, float]],
        num_images: int | None = None,
        lower_is_better: Collection[str] | None = None,
    ) -> StitchResults:
        """Join metrics, by stitch id and name, with the kinds, routes and costs.

        For ``lower_is_better`` see :func:`metric_directions`.
        """
        names = list(dict.fromkeys(n for found in metrics.values() for n in found))
        if not names:
            raise NoMetricsError(
                'no metric of the evaluator is a single number; the log or its own '
                'files have what it gave (config key: test_evaluator)'
            )
        results = []
        for i, found in metrics.items():
            if lacking := [n for n in names if n not in found]:
                raise ValueError(
                    f"stitch {i} has no metrics {lacking}; mmdet's CocoMetric gives "
                    "none where nothing was detected, type='StitchCocoMetric' does "
                    '(config key: test_evaluator)'
                )
            # Metrics may be numpy scalars, which JSON cannot serialise.
            more = dict(metrics={name: float(v) for name, v in found.items()})
            more |= dict(num_images=num_images, **costs[i]._asdict())
            route = space.describe(space[i])
            results.append(StitchResult(i, space[i].kind, route, **more))
        directions = metric_directions(names, lower_is_better)
        header = costs.input_size, space.fingerprint, costs.setup, costs.scope
        return cls(results, key_metric(names), directions, *header)

    def ranked_by(
        self, metric: str | None = None, lower_is_better: Collection[str] | None = None
    ) -> StitchResults:
        """Return these results ranked by another metric; see :meth:`collect`."""
        metric, names = metric or self.metric, list(self.stitches[0].metrics)
        check(metric in names, '--metric', metric, names)
        directions = metric_directions(names, lower_is_better, self.directions)
        return replace(self, metric=metric, directions=directions)

    @property
    def higher_is_better(self) -> bool:
        """Direction of the ranking metric; raises if it is unknown."""
        if self.metric not in self.directions:
            raise ValueError(
                f'whether more or less of the metric {self.metric!r} is better is not '
                f'known; say --lower-is-better {self.metric}, or --lower-is-better '
                f'{NONE} if more is (argument and config key: lower_is_better)'
            )
        return self.directions[self.metric] == HIGHER

    def score(self, result: StitchResult) -> float:
        """Return the ranking metric of one stitch."""
        return result.metrics[self.metric]

    def updated_by(self, others: StitchResults) -> StitchResults:
        """Return these results with rows replaced by those of ``others``, by id."""
        newer = {r.id: r for r in others.stitches}
        return replace(self, stitches=[newer.get(r.id, r) for r in self.stitches])

    @property
    def complete(self) -> list[StitchResult]:
        """Results measured on the most images; the others were only screened."""
        most = max((r.num_images or 0 for r in self.stitches), default=0)
        return [r for r in self.stitches if (r.num_images or 0) == most]

    def scores(self) -> dict[int, float]:
        """Return the ranking metric of complete results by id, without NaN."""
        return drop_nan({r.id: self.score(r) for r in self.complete}, self.metric)

    def column(self, name: str) -> dict[int, float]:
        """Return one cost by stitch id."""
        return cost_column({r.id: r for r in self.stitches}, name)

    def front(self, cost: str = 'flops') -> list[int]:
        """Return the ids on the Pareto front of the ranking metric over a cost."""
        return pareto_front(self.column(cost), self.scores(), self.higher_is_better)

    def rank_correlation(self, cost: str = 'flops') -> float:
        """Return Spearman's rank correlation of the ranking metric and a cost.

        Near 1, or -1 if lower is better, the cost alone determines the rank of a
        stitch. NaN if the metric or the cost is the same for all stitches.
        """
        column, scores = self.column(cost), self.scores()
        return rank_correlation([column[i] for i in scores], list(scores.values()))

    def with_costs(self, costs: CostTable) -> StitchResults:
        """Return these results with the costs of a cost table."""
        own = {r.id: Cost(r.flops, r.params) for r in self.stitches}
        known = {i: costs[i] for i in own if i in costs.costs}
        counted = CostTable(own, self.input_size, self.space, scope=self.scope)
        replace(costs, costs=known).check_same_model(counted)
        stitches = [replace(r, **known[r.id]._asdict()) for r in self.stitches]
        return replace(self, stitches=stitches, setup=costs.setup)

    def check_space(self, space: StitchingSpace, name: str = 'results') -> None:
        """Raise if the results' stitching space is known and differs."""
        if self.space not in (None, space.fingerprint):
            raise ValueError(
                f'{name} of {len(self.stitches)} stitches are of another stitching '
                f'space than the model, which has depths {space.depths} and '
                f'{len(space)} stitches (config keys: backbone.anchors, '
                'backbone.kinds, backbone.stitch_ids)'
            )

    def to_dict(self) -> dict:
        """Return JSON data for :meth:`from_dict`; non-finite metrics become None."""
        data = asdict(self)
        if self.data_size is None:
            del data['data_size']
        for row in data['stitches']:
            found = row['metrics'].items()
            row['metrics'] = {n: v if math.isfinite(v) else None for n, v in found}
        return data

    @classmethod
    def from_dict(cls, data: Mapping) -> StitchResults:
        """Return validated results from the output of :meth:`to_dict`."""
        rows = data['stitches']
        stitches = [StitchResult(**row) for row in rows]
        # Published figures lack parameters.
        optional = 'params', 'latency', 'memory'
        check_rows(rows, {s.id: s for s in stitches}, optional)
        names = stitches[0].metrics.keys()
        stitches = [_checked(s, names) for s in stitches]
        metric = data['metric']
        require(metric in names, 'metric', metric, sorted(names))
        directions = data.get('directions', metric_directions(names))
        right = directions.keys() <= names and {*directions.values()} <= {HIGHER, LOWER}
        wanted = f'{HIGHER!r} or {LOWER!r} by metric'
        require(right, 'directions', directions, wanted)
        size = data.get('data_size')
        right = size is None or is_whole(size, 1)
        require(right, 'data_size', size, 'whole numbers from 1')
        return cls(stitches, metric, directions, *read_header(data), size)

    def save(self, path: str | os.PathLike) -> None:
        """Write the results to a JSON file atomically."""
        write_json(path, self.to_dict())

    @classmethod
    def read(
        cls,
        path: str | os.PathLike,
        space: StitchingSpace | None = None,
        lower_is_better: Collection[str] | None = None,
    ) -> StitchResults:
        """Read results written by :meth:`save`, and check their space if given."""
        made_by = 'tools/test.py --stitch-id all'
        results = read_json(path, cls.from_dict, 'file of results', made_by)
        if space is not None:
            results.check_space(space, f'{path}: results')
        return results.ranked_by(lower_is_better=lower_is_better)


def check_comparable(results: Collection[StitchResults]) -> None:
    """Raise if results differ in ranking metric, direction or space."""
    ranked_by = {(r.metric, r.space, r.higher_is_better) for r in results}
    allowed = 'results of one stitching space, ranked by one metric'
    check(len(ranked_by) == 1, '--results', sorted(ranked_by), allowed)


def variant_of(table: CostTable | StitchResults) -> tuple[tuple[int, int], str | None]:
    """Return the input size and the precision of costs or results."""
    return tuple(table.input_size), table.setup and table.setup.dtype


def joint_rows(results: Sequence[StitchResults]) -> dict[Variant, StitchResult]:
    """Join complete results of several sizes and precisions, without NaN scores.

    :func:`cost_column` and :func:`pareto_front` accept the rows as a single front.
    """
    check_comparable(results)
    keys = [variant_of(r) for r in results]
    once = 'each size and precision once'
    check(len({*keys}) == len(keys), '--results', keys, once)
    known = [of_one.scores() for of_one in results]
    return {
        Variant(row.id, *key): row
        for key, of_one, scores in zip(keys, results, known, strict=True)
        for row in of_one.complete
        if row.id in scores
    }


def best_per_budget_group(results: StitchResults, keep: int) -> tuple[int, ...]:
    """Return ids of the anchors and the ``keep`` best stitches per budget group.

    Groups divide the range of FLOPs into ten equal parts. Stitches with a NaN score are
    never among the best.
    """
    check(keep >= 1, '--keep', keep, '1 stitch per budget group or more')
    found = {r.id: results.score(r) for r in results.stitches}
    scores = drop_nan(found, results.metric)
    sign = -1 if results.higher_is_better else 1
    chosen = {r.id for r in results.stitches if r.kind == ANCHOR_KIND}
    for group in split_cost_range(results.column('flops'), NUM_BUDGET_GROUPS):
        ranked = sorted(set(group) & set(scores), key=lambda i: (sign * scores[i], i))
        chosen |= set(ranked[:keep])
    return tuple(sorted(chosen))


def _checked(result: StitchResult, names: Collection[str]) -> StitchResult:
    """Validate a result that was read, and return it with NaN for null metrics."""
    of, images = f'of stitch {result.id}', result.num_images
    for name in ('kind', 'route'):
        text = getattr(result, name)
        require(isinstance(text, str), f'{name} {of}', text, 'text')
    right = images is None or is_whole(images, 1)
    require(right, f'num_images {of}', images, 'whole numbers from 1')
    found = result.metrics
    require(found.keys() == names, f'metrics {of}', list(found), sorted(names))
    for name, value in found.items():
        wanted = 'a finite number, or null where the metric is undefined'
        require(value is None or is_number(value), f'{name} {of}', value, wanted)
    metrics = {n: math.nan if v is None else v for n, v in found.items()}
    return replace(result, metrics=metrics)
