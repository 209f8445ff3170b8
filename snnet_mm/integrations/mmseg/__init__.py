"""Depth estimation with DPT on mmsegmentation's classes."""

from .depth_loss import ScaleInvariantLogLoss
from .depth_metric import RunningDepthMetric
from .dpt_depth_estimator import DPTDepthEstimator
from .dpt_depth_head import DPTDepthHead
from .load_depth_map import LoadDepthMap
