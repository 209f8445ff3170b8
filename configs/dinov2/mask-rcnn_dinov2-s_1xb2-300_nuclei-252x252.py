# DINOv2 ViT-S/14 fine-tuned on nuclei, the slow anchor of the pair; no windows. One CPU
# core, batch 2. No figure in the paper; measured: see
# docs/explanation/experiments.md.
_base_ = [
    '../_base_/models/mask-rcnn_vit_nuclei.py',
    '../_base_/datasets/nuclei_256x256.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/detection_runtime.py',
]
# A size that 14x14 patches divide: resize and crop in training, resize in tests.
image_size = (252, 252)
_base_.train_dataloader.dataset.pipeline[2].scale = image_size
_base_.train_dataloader.dataset.pipeline[3].crop_size = image_size
_base_.val_dataloader.dataset.pipeline[1].scale = image_size
_base_.test_dataloader.dataset.pipeline[1].scale = image_size
# All strides follow the patch size.
strides = [3.5, 7, 14, 28]
model = dict(
    data_preprocessor=dict(pad_size_divisor=252),
    backbone=dict(
        arch='small',
        img_size=image_size,
        patch_size=14,
        pos_embed_antialias=True,
        decomposed_rel_pos=False,
        layer_scale_init=1.0,
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2.lvd142m'
        ),
    ),
    neck=dict(in_channels=384, in_stride=14, strides=strides),
    rpn_head=dict(anchor_generator=dict(strides=strides)),
    roi_head=dict(
        bbox_roi_extractor=dict(featmap_strides=strides),
        mask_roi_extractor=dict(featmap_strides=strides),
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
