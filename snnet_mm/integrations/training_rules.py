"""Rules by which training knows classes of the mm packages, importing none."""

from snnet_mm.engine.checking_hooks import HEADS, ONE_CLASS

# Of classifiers, segmentors and detectors. Semantic heads of detectors have classes of
# their own, and an ``rpn_head`` has one.
HEADS.extend(
    ['head', 'decode_head', 'auxiliary_head', 'bbox_head', 'mask_head', 'panoptic_head']
)
ROI_PARTS = 'bbox_head', 'mask_head', 'mask_iou_head', 'point_head'
HEADS.extend(f'roi_head.{part}' for part in ROI_PARTS)
# mmdet's RPNs are a ``bbox_head`` where they are trained alone; mmseg's STDC has an
# auxiliary head for boundaries.
ONE_CLASS.update(['RPNHead', 'GARPNHead', 'STDCHead'])
