"""Metrics: their directions, Pareto fronts and how well orders agree."""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

from snnet_mm.utils import check

HIGHER, LOWER = 'higher', 'lower'
NONE = 'none'  # of the metrics nobody knows: none is better when lower

# Direction by the metric's name in small letters, without what stands before a '/',
# and the metrics that rank stitches by default, the first of them that there is.
# Tasks add theirs.
DIRECTIONS: dict[str, str] = {}
KEY_METRICS: list[str] = []


def know_metrics(
    higher: Iterable[str] = (), lower: Iterable[str] = (), ranking: Iterable[str] = ()
) -> None:
    """Add names to :data:`DIRECTIONS` and :data:`KEY_METRICS`."""
    DIRECTIONS.update(dict.fromkeys(higher, HIGHER) | dict.fromkeys(lower, LOWER))
    KEY_METRICS.extend(ranking)


def short_name(metric: str) -> str:
    """Name that a metric is known by: ``'rmse'`` of ``'nyu/RMSE'``."""
    return metric.rsplit('/', 1)[-1].lower()


def key_metric(metrics: Collection[str]) -> str:
    """The metric that ranks stitches by default."""
    names = {short_name(name): name for name in reversed(list(metrics))}
    keys = (names[key] for key in KEY_METRICS if key in names)
    return next(keys, next(iter(metrics)))


def metric_directions(
    metrics: Iterable[str],
    lower_is_better: Collection[str] | None = None,
    known: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Direction of every metric whose direction is known.

    Besides :data:`DIRECTIONS` those ``known`` from before count. ``lower_is_better``
    names metrics that are better when lower, ``('none',)`` if none are; all others of
    unknown direction are then better when higher.
    """
    metrics = list(metrics)
    found = {m: DIRECTIONS[n] for m in metrics if (n := short_name(m)) in DIRECTIONS}
    found |= known or {}
    if lower_is_better is None:
        return found
    lower = {short_name(m) for m in lower_is_better} - {NONE}
    for name in lower:
        there = name in map(short_name, metrics)
        check(there, '--lower-is-better', name, [*metrics, NONE])
    return {
        m: LOWER if short_name(m) in lower else found.get(m, HIGHER) for m in metrics
    }


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation of two lists; NaN if all values of one are equal."""
    if len(set(a)) < 2 or len(set(b)) < 2:
        return math.nan
    return statistics.correlation(_ranks(a), _ranks(b))


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0; equal values share the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]
