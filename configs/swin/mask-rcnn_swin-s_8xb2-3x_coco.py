# Swin-S alone, a slow anchor: Mask R-CNN on COCO 2017 with mmdetection's 3x recipe. 8
# GPUs, batch 16. No figure in the paper; mmdetection's model zoo has 48.2 box AP and
# 43.2 mask AP. Ours: not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_swin-s.py',
    '../_base_/datasets/coco_ms-crop.py',
    '../_base_/schedules/adamw_swin_3x.py',
    '../_base_/detection_runtime.py',
]
