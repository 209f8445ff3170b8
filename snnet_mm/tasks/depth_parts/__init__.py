"""Depth estimation with DPT, based on mmsegmentation's classes."""

from .dpt import (
    DPTDepthEstimator,
    DPTDepthHead,
    LoadDepthMap,
    ScaleInvariantLogLoss,
)
from .metric import RunningDepthMetric
from .transforms import FixedCrop, RandomGammaColor
