# DINOv2 ViT-S/14 fine-tuned on nuclei, the slow anchor of the pair; no windows. One CPU
# core, batch 2. No figure in the paper; measured: see
# docs/explanation/experiments_tasks.md.
_base_ = [
    '../_base_/models/mask-rcnn_vit_nuclei-patch14.py',
    '../_base_/datasets/nuclei_252x252.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/detection_runtime.py',
]
model = dict(
    backbone=dict(
        arch='small',
        img_size=_base_.image_size,
        patch_size=14,
        decomposed_rel_pos=False,
        layer_scale_init=1.0,
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2.lvd142m'
        ),
    ),
)
# Neck and heads learn from scratch.
optim_wrapper = dict(
    optimizer=dict(lr=3e-4),
    paramwise_cfg=dict(custom_keys=dict(_delete_=True, backbone=dict(lr_mult=0.1))),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-6, begin=50, end=300, by_epoch=False),
]
train_cfg = dict(max_iters=300, val_interval=300)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1, interval=100))
