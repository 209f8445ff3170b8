"""Detection and instance segmentation on mmdetection's classes."""

from snnet_mm.utils import check_ops

check_ops()

from .stitch_coco_metric import StitchCocoMetric  # noqa: E402
