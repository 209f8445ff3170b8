"""What an evaluation found out about each stitch."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real

from snnet_mm.utils import is_whole
from snnet_mm.utils.json_file import read_json, require

from .cost_table import HOW_TO_MEASURE, Cost, CostTable, Setup, read_size
from .pareto import pareto_front
from .rank_correlation import rank_correlation
from .space import StitchingSpace

# The metric that ranks stitches, per task, and whether more of it is better.
KEY_METRICS = {
    'mIoU': True,
    'RMSE': False,
    'coco/bbox_mAP': True,
    'accuracy/top1': True,
}


@dataclass(frozen=True)
class StitchResult:
    """Costs and metrics of one stitch; see :class:`Stitch` and :class:`Cost`.

    ``num_images`` is how many images the metrics are from, if that is known.
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

    @classmethod
    def from_dict(cls, data: Mapping) -> StitchResult:
        """A result from plain data.

        Raises:
            ValueError: If an entry is of another form.
        """
        result = cls(**data)
        require(is_whole(result.id, 0), 'id of a stitch', result.id)
        for name in ('kind', 'route'):
            value = getattr(result, name)
            require(isinstance(value, str), f'{name} of stitch {result.id}', value)
        # Published figures lack parameters.
        Cost(result.flops, result.params or 0, result.latency, result.memory).check(
            result.id
        )
        images = result.num_images
        known = images is None or is_whole(images, 1)
        require(known, f'num_images of stitch {result.id}', images)
        for name, value in result.metrics.items():
            # NaN, which a metric can be, is a float.
            real = isinstance(value, Real) and not isinstance(value, bool)
            require(real, f'{name} of stitch {result.id}', value)
        return result


@dataclass(frozen=True)
class StitchResults:
    """Results of several stitches of one model.

    Args:
        stitches: One result per stitch, in the order of evaluation.
        metric: The metric that ranks them.
        higher_is_better: Whether more of it is better.
        input_size: Height and width that the costs hold for.
        space: Fingerprint of the stitching space, if known.
        setup: What latency and memory were measured on, if they were.
    """

    stitches: Sequence[StitchResult]
    metric: str
    higher_is_better: bool
    input_size: tuple[int, int]
    space: str | None = None
    setup: Setup | None = None

    @classmethod
    def collect(
        cls,
        space: StitchingSpace,
        costs: CostTable,
        metrics: Mapping[int, Mapping[str, float]],
        num_images: int | None = None,
    ) -> StitchResults:
        """Join the metrics of evaluated stitches with what is known of them.

        Raises:
            ValueError: If a stitch lacks metrics that another one has.
        """
        names = list(dict.fromkeys(n for found in metrics.values() for n in found))
        for stitch_id, found in metrics.items():
            lacking = [n for n in names if n not in found]
            if lacking or not names:
                raise ValueError(
                    f"stitch {stitch_id} has no metrics {lacking}; mmdet's CocoMetric "
                    "gives none where nothing was detected, type='StitchCocoMetric' "
                    'does (config key: test_evaluator)'
                )
        metric = next((n for n in names if n in KEY_METRICS), names[0])
        results = [
            StitchResult(
                stitch_id,
                space[stitch_id].kind,
                space.describe(space[stitch_id]),
                # Metrics come as numpy scalars too, which JSON does not know.
                metrics={name: float(v) for name, v in metrics[stitch_id].items()},
                num_images=num_images,
                **costs[stitch_id]._asdict(),
            )
            for stitch_id in metrics
        ]
        better = KEY_METRICS.get(metric, True)
        size, setup = costs.input_size, costs.setup
        return cls(results, metric, better, size, space.fingerprint, setup)

    def ranked_by(
        self, metric: str, higher_is_better: bool | None = None
    ) -> StitchResults:
        """The same results, ranked by another of their metrics.

        Args:
            metric: Name of the metric.
            higher_is_better: Whether more of it is better; by default it is, unless
                the metric is known to be an error.

        Raises:
            ValueError: If the results hold no such metric.
        """
        known = list(self.stitches[0].metrics)
        if metric not in known:
            raise ValueError(
                f'metric {metric!r} is not in the results; allowed are {known} '
                '(option: --metric)'
            )
        if higher_is_better is None:
            higher_is_better = KEY_METRICS.get(metric, True)
        return replace(self, metric=metric, higher_is_better=higher_is_better)

    def score(self, result: StitchResult) -> float:
        """The ranking metric of one stitch."""
        return result.metrics[self.metric]

    def updated_by(self, others: StitchResults) -> StitchResults:
        """These results, with those of ``others`` in place of older ones."""
        newer = {r.id: r for r in others.stitches}
        return replace(self, stitches=[newer.get(r.id, r) for r in self.stitches])

    @property
    def complete(self) -> list[StitchResult]:
        """The results from the most images: others were only screened."""
        most = max(r.num_images or 0 for r in self.stitches)
        return [r for r in self.stitches if (r.num_images or 0) == most]

    def scores(self) -> dict[int, float]:
        """The ranking metric by stitch id, without stitches that were only screened.

        Nothing is worse than NaN.
        """
        worst = -math.inf if self.higher_is_better else math.inf
        scores = {r.id: self.score(r) for r in self.complete}
        return {i: worst if math.isnan(s) else s for i, s in scores.items()}

    def column(self, name: str) -> dict[int, float]:
        """One cost by stitch id; see :meth:`CostTable.column`.

        Raises:
            ValueError: If there is no such cost, or the results do not hold it.
        """
        if name not in Cost._fields:
            raise ValueError(f'cost {name!r} is unknown; allowed are {Cost._fields}')
        column = {r.id: getattr(r, name) for r in self.stitches}
        if None in column.values():
            how = HOW_TO_MEASURE.format(name=name)
            raise ValueError(f'the results hold no {name}; {how}')
        return column

    def front(self, cost: str = 'flops') -> list[int]:
        """Ids on the Pareto front of the ranking metric over a cost."""
        return pareto_front(self.column(cost), self.scores(), self.higher_is_better)

    def rank_correlation(self, cost: str = 'flops') -> float:
        """Spearman's rank correlation of the ranking metric and a cost.

        Near 1, or -1 where lower is better, the budget alone tells how good a stitch
        is; NaN if one of them is the same for all stitches.
        """
        column, scores = self.column(cost), self.scores()
        return rank_correlation([column[i] for i in scores], list(scores.values()))

    def with_costs(self, costs: CostTable) -> StitchResults:
        """The same results with measured costs put in.

        Raises:
            ValueError: If the costs are not of the same model and input size.
        """
        known = {r.id: costs.costs.get(r.id) for r in self.stitches}
        if None in known.values():
            lacking = [i for i, cost in known.items() if cost is None]
            raise ValueError(
                f'the cost table is of another stitching space: it lacks the evaluated '
                f'stitches {lacking} (option: --costs)'
            )
        own = {
            r.id: Cost(r.flops, r.params or known[r.id].params) for r in self.stitches
        }
        rows = replace(costs, costs=known)
        rows.check_same_model(CostTable(own, self.input_size, self.space))
        stitches = [replace(r, **known[r.id]._asdict()) for r in self.stitches]
        return replace(self, stitches=stitches, setup=costs.setup)

    def check_space(self, space: StitchingSpace) -> None:
        """Refuse results that are not of this stitching space.

        Raises:
            ValueError: If the space they were found in is known and another one.
        """
        if self.space is not None and self.space != space.fingerprint:
            raise ValueError(
                f'results of {len(self.stitches)} stitches are of another stitching '
                f'space than that of the model, which has depths {space.depths} and '
                f'{len(space)} stitches (config keys: backbone.anchors, '
                'backbone.kinds, backbone.stitch_ids)'
            )

    def to_dict(self) -> dict:
        """Plain data, for JSON; :meth:`from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping) -> StitchResults:
        """Results from what :meth:`to_dict` gave.

        Raises:
            ValueError: If an entry is of another form.
        """
        if isinstance(data['stitches'], Mapping):
            raise ValueError(
                'it holds stitches by id, as published figures (option of '
                'plot_pareto.py: --depths, of check_prior.py: --published)'
            )
        stitches = [StitchResult.from_dict(s) for s in data['stitches']]
        ids = [s.id for s in stitches]
        require(len(set(ids)) == len(ids), 'ids', ids)
        for s in stitches[1:]:
            names = list(s.metrics)
            require(set(names) == set(stitches[0].metrics), f'metrics of {s.id}', names)
        metric, better = data['metric'], data['higher_is_better']
        require(isinstance(metric, str), 'metric', metric)
        require(isinstance(better, bool), 'higher_is_better', better)
        space, setup = data.get('space'), Setup.from_dict(data.get('setup'))
        require(space is None or isinstance(space, str), 'space', space)
        size = read_size(data['input_size'])
        return cls(stitches, metric, better, size, space, setup)

    @classmethod
    def read(
        cls, path: str | os.PathLike, space: StitchingSpace | None = None
    ) -> StitchResults:
        """The results in a ``stitches.json``.

        Args:
            path: The file.
            space: The stitching space that they must be of.

        Raises:
            ValueError: If there is no such file, it is damaged or something else, holds
                no results, or is of another space.
        """
        made_by = 'tools/test.py --stitch-id all'
        results = read_json(path, cls.from_dict, 'file of results', made_by)
        if not results.stitches:
            raise ValueError(f'{path} holds results of no stitch; {made_by} finds some')
        missing = [r.id for r in results.stitches if results.metric not in r.metrics]
        if missing:
            raise ValueError(f'{path} lacks {results.metric} of stitches {missing}')
        if space is not None:
            try:
                results.check_space(space)
            except ValueError as error:
                raise ValueError(f'{path}: {error}') from None
        return results
