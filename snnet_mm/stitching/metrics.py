"""Metrics: their directions, and which ranks stitches by default."""

from collections.abc import Collection, Iterable, Mapping

from snnet_mm.utils import check

HIGHER, LOWER = 'higher', 'lower'
# Value of --lower-is-better: no metric of unknown direction is better when lower.
NONE = 'none'

# Direction by lower-case metric name, without the prefix up to the last '/'; and the
# metrics that rank stitches by default, of which the first available one is used.
# Tasks register theirs.
DIRECTIONS: dict[str, str] = {}
KEY_METRICS: list[str] = []


def know_metrics(
    higher: Iterable[str] = (), lower: Iterable[str] = (), ranking: Iterable[str] = ()
) -> None:
    """Register names in :data:`DIRECTIONS` and :data:`KEY_METRICS`."""
    DIRECTIONS.update(dict.fromkeys(higher, HIGHER) | dict.fromkeys(lower, LOWER))
    KEY_METRICS.extend(ranking)


def short_name(metric: str) -> str:
    """Return a metric's registered name: ``'rmse'`` for ``'nyu/RMSE'``."""
    return metric.rsplit('/', 1)[-1].lower()


def key_metric(metrics: Collection[str]) -> str:
    """Return the default ranking metric: a key metric, else the first metric."""
    names = {short_name(name): name for name in reversed(list(metrics))}
    keys = (names[key] for key in KEY_METRICS if key in names)
    return next(keys, next(iter(metrics)))


def metric_directions(
    metrics: Iterable[str],
    lower_is_better: Collection[str] | None = None,
    known: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the direction of every metric for which it is known.

    ``known`` overrides :data:`DIRECTIONS`. ``lower_is_better`` overrides both and names
    metrics that are better when lower; ``('none',)`` names none. If given, all metrics
    of otherwise unknown direction are better when higher.
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
