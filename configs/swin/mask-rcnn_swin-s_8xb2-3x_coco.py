# Swin-S alone, a slow anchor: Mask R-CNN on COCO 2017 with mmdetection's 3x recipe. 8
# GPUs, batch 16. No figure in the paper; mmdetection's model zoo has 48.2 box AP and
# 43.2 mask AP. Ours: not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_swin-ti.py',
    '../_base_/swin_coco_3x.py',
    '../_base_/detection_runtime.py',
]
model = dict(
    backbone=dict(
        model='swin_small_patch4_window7_224',
        out_indices=(1, 3, 21, 23),
        init_cfg=dict(checkpoint='timm://swin_small_patch4_window7_224.ms_in1k'),
    )
)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='coco/bbox_mAP'))
