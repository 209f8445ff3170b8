"""The metric of language models."""

import math
from collections.abc import Sequence

from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS

from snnet_mm.stitching.metrics import DIRECTIONS, LOWER
from snnet_mm.utils import register

DIRECTIONS['perplexity'] = LOWER


@register(METRICS)
class Perplexity(BaseMetric):
    """The exponential of the mean cross entropy over all targets of all texts."""

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        self.results += [(s['nll'], s['num_targets']) for s in data_samples]

    def compute_metrics(self, results: list) -> dict[str, float]:
        nll, number = map(sum, zip(*results, strict=True))
        return dict(perplexity=math.exp(nll / number) if number else math.nan)
