# DeiT3-B alone: ViTDet's Mask R-CNN on COCO 2017 (SN-Netv2, appendix H). 8 GPUs,
# batch 8. Paper: no figure. Ours: not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_deit3-l.py',
    '../_base_/datasets/coco_1024x1024.py',
    '../_base_/schedules/adamw_vitdet_100e.py',
    '../_base_/detection_runtime.py',
]
model = dict(
    backbone=dict(
        arch='base',
        global_blocks=(2, 5, 8, 11),
        drop_path_rate=0.1,
        init_cfg=dict(checkpoint='checkpoints/deit_3_base_224_21k.pth'),
    ),
    neck=dict(in_channels=768),
)
optim_wrapper = dict(paramwise_cfg=dict(decay_rates=0.7))
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='coco/bbox_mAP'))
