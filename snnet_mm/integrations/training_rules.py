"""Rules by which training knows classes of the mm packages, importing none."""

from __future__ import annotations

from snnet_mm.engine.hooks.label_check_hook import HEADS

# Of classifiers, segmentors and detectors.
HEADS.extend(
    [
        'head',
        'decode_head',
        'auxiliary_head',
        'bbox_head',
        'roi_head.bbox_head',
        'roi_head.mask_head',
    ]
)
