"""Classification on mmpretrain's classes."""

from snnet_mm.engine.resume import RENAMED

from .adaptive_grad_clip_hook import AdaptiveGradClipHook
from .anchor_classifier import AnchorClassifier
from .stitched_cls_head import StitchedClsHead

RENAMED['head.ends.'] = 'head.anchor_heads.'
