"""What an evaluation found out about each stitch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from .cost_table import CostTable
from .pareto import pareto_front
from .space import StitchingSpace

# The metric that ranks stitches, per task, and whether more of it is better.
KEY_METRICS = {'mIoU': True, 'RMSE': False}


@dataclass(frozen=True)
class StitchResult:
    """Costs and metrics of one stitch; see :class:`Stitch` and :class:`Cost`."""

    id: int
    kind: str
    route: str
    flops: int
    params: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class StitchResults:
    """Results of several stitches of one model.

    Args:
        stitches: One result per stitch, in the order of evaluation.
        metric: The metric that ranks them.
        higher_is_better: Whether more of it is better.
        input_size: Height and width that the FLOPs hold for.
    """

    stitches: Sequence[StitchResult]
    metric: str
    higher_is_better: bool
    input_size: tuple[int, int]

    @classmethod
    def collect(
        cls,
        space: StitchingSpace,
        costs: CostTable,
        metrics: Mapping[int, Mapping[str, float]],
    ) -> StitchResults:
        """Join the metrics of evaluated stitches with what is known of them."""
        names = list(next(iter(metrics.values())))
        metric = next((n for n in names if n in KEY_METRICS), names[0])
        results = [
            StitchResult(
                stitch_id,
                space[stitch_id].kind,
                space.describe(space[stitch_id]),
                *costs[stitch_id],
                # Metrics come as numpy scalars too, which JSON does not know.
                {name: float(v) for name, v in metrics[stitch_id].items()},
            )
            for stitch_id in metrics
        ]
        better = KEY_METRICS.get(metric, True)
        return cls(results, metric, better, costs.input_size)

    def score(self, result: StitchResult) -> float:
        """The ranking metric of one stitch."""
        return result.metrics[self.metric]

    def front(self) -> list[int]:
        """Ids on the Pareto front of the ranking metric over FLOPs."""
        return pareto_front(
            {r.id: r.flops for r in self.stitches},
            {r.id: self.score(r) for r in self.stitches},
            self.higher_is_better,
        )

    def rank_correlation(self) -> float:
        """Spearman's rank correlation of the ranking metric and FLOPs.

        Near 1 the budget alone tells how good a stitch is; NaN if one of them is the
        same for all stitches.
        """
        flops = _ranks([r.flops for r in self.stitches])
        scores = _ranks([self.score(r) for r in self.stitches])
        if len(set(flops)) < 2 or len(set(scores)) < 2:
            return math.nan
        return statistics.correlation(flops, scores)

    def to_dict(self) -> dict:
        """Plain data, for JSON; :meth:`from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping) -> StitchResults:
        """Results from what :meth:`to_dict` gave."""
        stitches = [StitchResult(**s) for s in data['stitches']]
        size = tuple(data['input_size'])
        return cls(stitches, data['metric'], data['higher_is_better'], size)


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0; equal values share the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]
