"""Classification, based on mmpretrain's classes."""

from .adaptive_grad_clip_hook import AdaptiveGradClipHook
from .anchor_classifier import AnchorClassifier
from .stitched_cls_head import StitchedClsHead
