"""Depth estimation with DPT on mmsegmentation's classes."""

from .dataset import DepthDataset
from .dpt import (
    DPTDepthEstimator,
    DPTDepthHead,
    LoadDepthMap,
    ScaleInvariantLogLoss,
)
from .metric import RunningDepthMetric
from .transforms import FixedCrop, RandomGammaColor
