# DeiT3-S alone at half the size: ViTDet's Mask R-CNN on COCO 2017. One GPU, batch 8. No
# figure in the paper; not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_deit3-s.py',
    '../_base_/datasets/coco_512x512.py',
    '../_base_/schedules/adamw_vitdet_25e.py',
    '../_base_/detection_runtime.py',
]
model = dict(data_preprocessor=dict(pad_size_divisor=512), backbone=dict(img_size=512))
optim_wrapper = dict(paramwise_cfg=dict(decay_rates=0.7))
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2))
