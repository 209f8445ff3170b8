"""Depth estimation with DPT, and EoMT, based on mmsegmentation's classes.

EoMT requires mmdetection, too; ``snnet_mm.tasks.mmseg.eomt`` registers it.
"""

from snnet_mm.utils import torchvision_ops

torchvision_ops.install()

from .depth_metric import RunningDepthMetric  # noqa: E402
from .depth_transforms import FixedCrop, RandomGammaColor  # noqa: E402
from .dpt import (  # noqa: E402
    DepthAnythingHead,
    DPTDepthEstimator,
    DPTDepthHead,
    LoadDepthMap,
    ScaleInvariantLogLoss,
)
