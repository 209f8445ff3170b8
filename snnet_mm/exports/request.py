"""Export options, validated once, and the allowed loss of exported files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, product
from typing import TYPE_CHECKING

from snnet_mm.stitching import HIGHER, Selection, key_metric, metric_directions
from snnet_mm.utils import check, is_number, is_whole

from .formats import FORMATS, PRECISIONS, Written

if TYPE_CHECKING:
    from .verification import Verified

PYTORCH = 'pytorch'


@dataclass(frozen=True)
class ExportRequest:
    """Stitches to export, with formats, precisions and verification.

    Args:
        stitches: The stitches.
        formats: Keys of :data:`FORMATS`. Default: ``'mm'``.
        precisions: Some of :data:`PRECISIONS`, for every format. Default: ``'fp32'``.
        bundle: Whether all stitches share weights, in formats that support it.
            Default: False.
        verify_on: Data to evaluate files on, ``'val'`` or ``'test'``. Default: None,
            which skips the evaluation.
        limit: Number of images to evaluate on, evenly spread. Default: all.
        tolerance: Largest allowed loss; see :func:`lost_points`. Default: 0.5.
    """

    stitches: Selection
    formats: Sequence[str] = ('mm',)
    precisions: Sequence[str] = ('fp32',)
    bundle: bool = False
    verify_on: str | None = None
    limit: int | None = None
    tolerance: float = 0.5

    def __post_init__(self) -> None:
        modes = None, 'val', 'test'
        check(self.verify_on in modes, '--verify-on', self.verify_on, modes)
        right = self.limit is None or is_whole(self.limit, 1)
        check(right, '--limit', self.limit, 'a whole number from 1')
        right = is_number(self.tolerance) and self.tolerance >= 0
        check(right, '--tolerance', self.tolerance, 'a number from 0')
        known = self.formats and set(self.formats) <= set(FORMATS)
        check(known, '--format', tuple(self.formats), FORMATS)
        known = self.precisions and set(self.precisions) <= set(PRECISIONS)
        check(known, '--precision', tuple(self.precisions), PRECISIONS)
        for name, precision in product(self.formats, self.precisions):
            format = FORMATS[name]
            allowed = f'fp32 for {name}: {format.casts}'
            right = precision == 'fp32' or not format.casts
            check(right, '--precision', precision, allowed)
            needed = format.packages.get('any', ()), format.packages.get(precision, ())
            missing = [n for n in chain(*needed) if find_spec(n) is None]
            allowed = f"an installed one: pip install -e '.[{format.extra}]' for "
            check(not missing, '--format', name, allowed + ', '.join(missing))


def lost_points(value: float, wanted: float, higher_is_better: bool) -> float:
    """Return the loss of a metric in points of 100, or of an error in percent.

    Shares from 0 to 1 are converted to points. NaN is an infinite loss, or none if
    ``wanted`` is NaN, too.
    """
    if math.isnan(value):
        return 0.0 if math.isnan(wanted) else math.inf
    if higher_is_better:
        return (wanted - value) * (100 if max(value, wanted) <= 1 else 1)
    return 100 * (value - wanted) / max(abs(wanted), 1e-9)


def tolerance_for(lost: float) -> float:
    """Return the smallest tolerance of two decimals that allows a loss."""
    return math.ceil(100 * lost - 1e-6) / 100 if math.isfinite(lost) else lost


def judge(
    stitch_id: int, file: Written, found: Mapping[str, Verified], request: ExportRequest
) -> tuple[dict, bool]:
    """Return the manifest's entry of an evaluated file, and whether to keep it.

    Raises:
        ValueError: If an fp32 file, which has no fallback, loses too much, or if the
            direction of the metric is unknown.
    """
    (own, ms), (wanted, wanted_ms) = found[file.path.name], found[PYTORCH]
    metric = key_metric(wanted.metrics)
    direction = metric_directions(wanted.metrics).get(metric)
    check(direction, '--verify-on', metric, 'a metric whose direction is known')
    scores = own.metrics[metric], wanted.metrics[metric]
    lost = lost_points(*scores, direction == HIGHER)
    kept = round(lost, 6) <= request.tolerance
    what = f'at least {tolerance_for(lost)}, what stitch {stitch_id} loses as '
    what += f'{file.format} in {file.precision}: {metric} {scores[0]:.4g} '
    what += f'instead of {scores[1]:.4g}'
    check(kept or file.precision != 'fp32', '--tolerance', request.tolerance, what)
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
