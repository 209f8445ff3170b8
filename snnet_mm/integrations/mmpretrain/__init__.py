"""Classification on mmpretrain's classes."""

from .anchor_classifier import AnchorClassifier
from .stitched_cls_head import StitchedClsHead

__all__ = ['AnchorClassifier', 'StitchedClsHead']
