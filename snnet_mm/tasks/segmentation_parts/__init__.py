"""Segmentation heads, based on classes of mmsegmentation and mmdetection."""

from snnet_mm.tasks import detection_parts  # noqa: F401, operators of mmcv

from .eomt import EoMTSegHead
