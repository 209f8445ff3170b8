# DeiT3-L alone: ViTDet's Mask R-CNN on COCO 2017 (SN-Netv2, appendix H). 8 GPUs,
# batch 8. Paper: 51.9 box AP. Ours: not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_deit3-l.py',
    '../_base_/datasets/coco_1024x1024.py',
    '../_base_/schedules/adamw_vitdet_100e.py',
    '../_base_/detection_runtime.py',
]
optim_wrapper = dict(paramwise_cfg=dict(decay_rates=0.8))
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='coco/bbox_mAP'))
