"""Metric results, buffered separately for each of several stitches."""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from logging import Logger
from numbers import Real
from typing import NamedTuple

from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.logging import MMLogger
from torch import nn

from snnet_mm.datasets.batches import DataSamples, prepare
from snnet_mm.tasks import task_of
from snnet_mm.tasks.base import OTHER, class_names, known
from snnet_mm.utils import check, quiet_terminal
from snnet_mm.utils.logging import at_least

from .image_scores import ImageScores, gathered, image_names, image_scores


class StitchScores(NamedTuple):
    """Metrics of a stitch, the number of tested images, and its per-image scores."""

    metrics: dict[str, float]
    num_images: int
    images: ImageScores | None


class MetricBuffers:
    """Per-image results of metrics, one set for each of several stitches.

    mmengine's metrics collect in ``metric.results`` and compute at the end. Switching
    the stitch swaps these lists, so that one evaluator, with its data set's
    annotations, serves all stitches. ``ids`` are stitch ids, or names of exported
    files.
    """

    def __init__(self, evaluator: Evaluator, ids: Sequence[int | str]) -> None:
        self.evaluator, self.ids = evaluator, tuple(ids)
        for kind in map(type, evaluator.metrics):
            own = kind.evaluate is BaseMetric.evaluate
            expected = 'metrics that collect their own results'
            check(own, 'test_evaluator', kind.__name__, expected)
        self.names: list[str] = []  # of the images of this process
        self._collected = {i: [[] for _ in evaluator.metrics] for i in self.ids}

    @contextmanager
    def of(self, stitch_id: int | str) -> Iterator[None]:
        """Redirect the evaluator's metrics to the buffers of a stitch."""
        metrics = self.evaluator.metrics
        for metric, buffer in zip(metrics, self._collected[stitch_id], strict=True):
            metric.results = buffer
        try:
            yield
        finally:
            for metric in metrics:
                metric.results = []

    def predict(
        self,
        model: nn.Module,
        data_batch: dict,
        switch: Callable[[int | str], object],
    ) -> Iterator[tuple[int | str, DataSamples]]:
        """Yield each stitch's predictions of a batch, once metrics have processed them.

        The batch is preprocessed once. ``switch`` activates each stitch.
        """
        predict = prepare(model, data_batch)
        for i in self.ids:
            switch(i)
            outputs = predict()
            self.add(i, outputs, data_batch)
            yield i, outputs
        self.note(outputs)

    def add(self, stitch_id: int | str, outputs: DataSamples, data_batch: dict) -> None:
        """Let the metrics process a stitch's predictions of a batch."""
        with self.of(stitch_id):
            self.evaluator.process(outputs, data_batch)

    def note(self, outputs: DataSamples) -> None:
        """Note the names of the images of a batch, once all stitches predicted it."""
        self.names += image_names(outputs)

    def scores(
        self, logger: Logger, num_images: int, metric: str | None = None
    ) -> dict[int | str, StitchScores]:
        """Compute the metrics of all stitches over the images of all processes.

        Per-class tables go to the log file only. Images beyond ``num_images``, which a
        sampler repeats, are dropped. Per-image scores are those of ``metric``, by
        default of the one that ranks stitches.
        """
        names = gathered(self.names, num_images)
        scores, of_all = {}, self.evaluator.metrics
        for i in self.ids:
            with quiet_terminal(logger), self.of(i):
                logger.info(f'stitch {i}:')
                results = [list(of.results) for of in of_all]
                values = self.evaluator.evaluate(len(names))
                metrics = numbers_of(self.evaluator, values)
                for name in values.keys() - metrics.keys():  # such as a matrix
                    logger.info(f'{name}: {values[name]}')
            images = image_scores(i, of_all, results, values, metric, names)
            scores[i] = StitchScores(metrics, len(names), images)
        return scores


def prefixes_of(evaluator: Evaluator) -> list[str]:
    """Return the prefix of an evaluator's names for each of its metrics.

    mmdet's ``MultiDatasetsEvaluator`` puts the name of a data set before a metric's own
    prefix.
    """
    sets = getattr(evaluator, 'dataset_prefixes', [''] * len(evaluator.metrics))
    pairs = zip(sets, evaluator.metrics, strict=True)
    return [''.join(f'{p}/' for p in (of, m.prefix) if p) for of, m in pairs]


def numbers_of(evaluator: Evaluator, values: Mapping[str, object]) -> dict[str, float]:
    """Return the scalar values of an evaluator; undefined values are NaN.

    Values that a metric omitted are added, unless they exist under another prefix.
    """
    values = dict(values)
    for metric, prefix in zip(evaluator.metrics, prefixes_of(evaluator), strict=True):
        own = {n.removeprefix(prefix): n for n in values if n.startswith(prefix)}
        own = {name: values[full] for name, full in own.items()}
        for name, value in task_of(metric).metric_values(metric, own).items():
            full = prefix + name
            if name in own or not any(n.endswith(f'/{full}') for n in values):
                values[full] = value
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, Real) or getattr(value, 'ndim', None) == 0
    }


def values_of_few(evaluator: Evaluator) -> dict[str, object] | None:
    """Compute the metrics of a few images; return None if these may not suffice.

    They do not for metrics that save predictions or count other images as missed, and
    perhaps for metrics of no known task, whose errors are no news: a single class may
    be too few.
    """
    values, everything = {}, True
    prefixes = prefixes_of(evaluator)
    for metric, prefix in zip(evaluator.metrics, prefixes, strict=True):
        task = task_of(metric)
        saves = any(getattr(metric, key, None) for key in known('saving_keys'))
        exact = task.exact_metric in (None, *class_names(metric))
        if saves or not exact or not metric.results:
            everything = False
            continue
        try:
            found = _compute_silently(metric)
        except Exception:
            if task is not OTHER:
                raise
            everything = False
            continue
        values |= {prefix + name: value for name, value in found.items()}
    return values if everything else None


def _compute_silently(metric: BaseMetric) -> dict[str, object]:
    logger = MMLogger.get_current_instance()
    with at_least(logging.CRITICAL, logger), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        return metric.compute_metrics([*metric.results])
