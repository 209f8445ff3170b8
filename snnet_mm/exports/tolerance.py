"""What an exported file may lose of the metric."""

import math
from collections.abc import Mapping

from snnet_mm.stitching import HIGHER, key_metric, metric_directions
from snnet_mm.utils import check

from .request import ExportRequest
from .verification import PYTORCH, Verified


def lost_points(value: float, wanted: float, higher_is_better: bool) -> float:
    """Return what a metric lost: points of 100, or of an error percent of it.

    Shares, from 0 to 1, count as points of 100. NaN lost everything.
    """
    if math.isnan(value):
        return 0.0 if math.isnan(wanted) else math.inf
    if higher_is_better:
        return (wanted - value) * (100 if max(value, wanted) <= 1 else 1)
    return 100 * (value - wanted) / max(abs(wanted), 1e-9)


def tolerance_for(lost: float) -> float:
    """Return the least tolerance of two digits that allows a loss."""
    return math.ceil(100 * lost - 1e-6) / 100 if math.isfinite(lost) else lost


def judge(
    stitch_id: int, file: Mapping, found: Mapping[str, Verified], request: ExportRequest
) -> tuple[dict, bool]:
    """Return the manifest's entry of an evaluated file, and whether it may stay.

    Raises:
        ValueError: If a file in fp32, in whose place there is none, lost too much.
    """
    (own, ms), (wanted, wanted_ms) = found[file['name']], found[PYTORCH]
    metric = key_metric(wanted.metrics)
    direction = metric_directions(wanted.metrics).get(metric)
    check(direction, '--verify-on', metric, 'metrics whose direction is known')
    scores = own.metrics[metric], wanted.metrics[metric]
    lost = lost_points(*scores, direction == HIGHER)
    kept = round(lost, 6) <= request.tolerance
    what = f'at least {tolerance_for(lost)}, what stitch {stitch_id} loses as '
    what += f'{file["format"]} in {file["precision"]}: {metric} {scores[0]:.4g} '
    what += f'instead of {scores[1]:.4g}'
    must = file['precision'] == 'fp32'
    check(kept or not must, '--tolerance', request.tolerance, what)
    interval = (math.nan,)
    if own.images and wanted.images:
        interval = own.images.difference_from(wanted.images)
    numbers = dict(value=scores[0], pytorch=scores[1], lost=lost)
    about = dict(on=request.verify_on, images=own.num_images, metric=metric)
    # JSON has neither NaN nor infinity.
    about |= {k: v if math.isfinite(v) else None for k, v in numbers.items()}
    about |= dict(interval=interval if all(map(math.isfinite, interval)) else None)
    metrics = {k: v for k, v in own.metrics.items() if math.isfinite(v)}
    return about | dict(ms=ms, pytorch_ms=wanted_ms, metrics=metrics), kept
