"""Depth estimation with DPT on mmsegmentation's classes."""

from .depth_metric import RunningDepthMetric
from .dpt_depth import (
    DPTDepthEstimator,
    DPTDepthHead,
    LoadDepthMap,
    ScaleInvariantLogLoss,
)
