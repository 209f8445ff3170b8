"""Classification on mmpretrain's classes."""

from .stitched_cls_head import EndClassifier, StitchedClsHead

__all__ = ['EndClassifier', 'StitchedClsHead']
