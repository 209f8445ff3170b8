"""Depth estimation with DPT on mmsegmentation's classes."""

from .depth_dataset import DepthDataset
from .depth_metric import RunningDepthMetric
from .depth_transforms import FixedCrop, RandomGammaColor
from .dpt_depth import (
    DPTDepthEstimator,
    DPTDepthHead,
    LoadDepthMap,
    ScaleInvariantLogLoss,
)
