"""Per-image statistics of metrics, from which intervals are computed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import PurePath
from typing import TypeVar

import numpy as np
from mmengine.dist import all_gather_object
from mmengine.evaluator import BaseMetric
from numpy.typing import NDArray

from snnet_mm.stitching import StitchTable, key_metric
from snnet_mm.tasks import task_of
from snnet_mm.utils import atomic_path, check, digest, refusal

Array = NDArray[np.float64]
T = TypeVar('T')
NUM_RESAMPLES = 1000
ROUNDING = 0.006  # mmseg rounds percentages to two decimals


@dataclass(frozen=True)
class ImageScores:
    """Per-image statistics of a metric for several stitches of a model.

    The metric is ``scale`` times the mean over columns of the ratio of sums over
    images: intersections over unions by class for mIoU, hits over 1 for top-1, a
    mean over images for depth. Columns whose denominator is 0 are skipped.

    Args:
        metric: Name of the metric.
        ids: Stitch ids.
        numerators: Array of shape (stitches, images, columns).
        denominators: Array of the same shape.
        scale: 100 for percent. Default: 1.
        names: Digest of the names of all images, in order.
        digest: Digest of the test; see :class:`StitchTable`.
    """

    metric: str
    ids: tuple[int, ...]
    numerators: Array
    denominators: Array
    scale: float = 1
    names: str = ''
    digest: str = ''

    def scores(self, weights: Array) -> Array:
        """Return the metric ``(R, stitches)`` for rows of image weights ``(R, N)``."""
        above, below = (
            np.einsum('rn,snk->rsk', weights, part, optimize=True)
            for part in (self.numerators, self.denominators)
        )
        seen = below > 0
        ratios = np.divide(above, below, out=np.zeros(above.shape), where=seen)
        with np.errstate(invalid='ignore'):
            return self.scale * ratios.sum(axis=-1) / seen.sum(axis=-1)

    def difference_from(self, other: ImageScores) -> tuple[float, float]:
        """Return the 95 % interval of this metric minus the metric of another model.

        The bootstrap is paired: both scores are of one stitch and the same images.
        """
        weights = resampled_images(self.numerators.shape[1], NUM_RESAMPLES)
        differences = self.scores(weights) - other.scores(weights)
        low, high = np.nanpercentile(differences, [2.5, 97.5]).tolist()
        return low, high

    def save(self, path: str | os.PathLike) -> None:
        """Write an npz file atomically."""
        with atomic_path(path) as temporary, temporary.open('wb') as file:
            np.savez_compressed(file, **vars(self))

    @classmethod
    def stack(cls, parts: Sequence[ImageScores]) -> ImageScores:
        """Join the statistics of several stitches on the same images."""
        ids = tuple(i for part in parts for i in part.ids)
        above = np.concatenate([part.numerators for part in parts])
        below = np.concatenate([part.denominators for part in parts])
        return replace(parts[0], ids=ids, numerators=above, denominators=below)

    @classmethod
    def read(
        cls, path: str | os.PathLike, results: StitchTable | None = None
    ) -> ImageScores:
        """Read a file of :meth:`save`, and check that it matches given results."""
        try:
            with np.load(path) as data:
                parts = {k: x if x.ndim == 3 else x.tolist() for k, x in data.items()}
            scores = cls(**parts | dict(ids=tuple(parts['ids'])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            expected = f'per-image statistics, which tools/test.py writes ({error})'
            raise refusal('--results', str(path), expected) from error
        same = results is None or scores.digest == results.digest
        expected = 'statistics from the same test as stitches.json'
        check(same, '--results', str(path), expected)
        return scores


def image_names(outputs: Sequence) -> list[str]:
    """Return the name of every predicted image: the last three parts of its path."""
    paths = (getattr(sample, 'img_path', '') for sample in outputs)
    return ['/'.join(PurePath(str(path)).parts[-3:]) for path in paths]


def gathered(parts: Sequence[T], num_images: int) -> list[T]:
    """Gather per-image values of all processes in the order of the data set.

    Values beyond ``num_images`` belong to images that a sampler repeated, and are
    dropped.
    """
    turns = chain.from_iterable(zip_longest(*all_gather_object(list(parts))))
    return [part for part in turns if part is not None][:num_images]


def resampled_images(number: int, num_resamples: int) -> Array:
    """Return weights of images, one row per bootstrap draw."""
    shares = np.full(number, 1 / number)
    return np.random.default_rng(0).multinomial(number, shares, num_resamples)


def image_scores(
    stitch_id: int | str,
    metrics: Sequence[BaseMetric],
    results: Sequence[list],
    values: Mapping[str, float],
    wanted: str | None = None,
    names: Sequence[str] = (),
) -> ImageScores | None:
    """Return the per-image statistics of the ranking metric, if its task has any.

    All processes must call this, with the ``results`` that each metric collected in the
    process, and the values and image names of all. If the statistics do not reproduce
    the value of the metric, as with a threshold, return None.
    """
    if wanted not in values:
        # mmdet's metrics return no values if nothing was detected.
        wanted = key_metric(values) if values else ''
    above, below, scale = (), (), 1
    for metric, found in zip(metrics, results, strict=True):
        known = task_of(metric).image_statistics(metric, found) if found else {}
        above, below, scale = known.get(
            wanted.rpartition('/')[2], (above, below, scale)
        )
    if not (rows := gathered([*zip(above, below, strict=True)], len(names))):
        return None
    parts = (np.asarray(x, np.float32)[None] for x in zip(*rows, strict=True))
    scores = ImageScores(wanted, (stitch_id,), *parts, scale, digest(names))
    made_up = scores.scores(np.ones((1, len(rows)))).item()
    same = np.isclose(made_up, values[wanted], 1e-4, ROUNDING, equal_nan=True)
    return scores if same else None
