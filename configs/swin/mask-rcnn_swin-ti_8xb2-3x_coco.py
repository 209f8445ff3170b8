# Swin-Ti alone, a fast anchor: Mask R-CNN on COCO 2017 with mmdetection's 3x recipe. 8
# GPUs, batch 16. No figure in the paper; mmdetection's model zoo has 46.0 box AP and
# 41.6 mask AP. Ours: not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_swin-ti.py',
    '../_base_/swin_coco_3x.py',
    '../_base_/detection_runtime.py',
]
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='coco/bbox_mAP'))
