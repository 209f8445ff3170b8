"""Depth estimation with mmseg."""

import numpy as np
from mmengine.evaluator import BaseMetric

from .base import ImageStatistics, register_task
from .segmentation import DenseTask

# Ordered as the per-image results of RunningDepthMetric.
METRICS = ('delta1', 'delta2', 'delta3', 'AbsRel', 'RMSE', 'log10')


@register_task
class Depth(DenseTask):
    """Depth in metres per pixel."""

    name = 'depth'
    parts = 'snnet_mm.tasks.mmseg'
    classes = 'DepthEstimator', 'RunningDepthMetric'
    higher = 'delta1', 'delta2', 'delta3', 'd1', 'd2', 'd3'
    lower = 'rmse', 'rmse_log', 'absrel', 'abs_rel', 'sqrel', 'sq_rel', 'log10', 'silog'
    ranking = ('rmse',)

    def image_statistics(
        self, metric: BaseMetric, results: list
    ) -> dict[str, ImageStatistics]:
        """Return the metrics by image; images without valid pixels have weight 0."""
        values = np.array(results)[..., None]
        seen = np.isfinite(values[:, 0])
        return {
            name: (np.where(seen, values[:, i], 0), seen, 1)
            for i, name in enumerate(METRICS)
        }
