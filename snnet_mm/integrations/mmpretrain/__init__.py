"""Classification on mmpretrain's classes."""

from snnet_mm.engine.resume import RENAMED

from .anchor_classifier import AnchorClassifier
from .stitched_cls_head import StitchedClsHead

RENAMED['head.ends.'] = 'head.anchor_heads.'
