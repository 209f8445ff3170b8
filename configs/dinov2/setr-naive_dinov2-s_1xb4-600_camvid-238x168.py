# DINOv2 ViT-S/14 fine-tuned on CamVid, the slow anchor of the pair: 12 blocks, width
# 384. One CPU core, batch 4. No figure in the paper; measured: see README.md.
_base_ = [
    '../_base_/models/setr-naive_vit.py',
    '../_base_/datasets/camvid_240x176.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/default_runtime.py',
]
crop_size = (168, 238)
scale = (238, 168)
model = dict(
    data_preprocessor=dict(size=crop_size),
    backbone=dict(
        arch='small',
        img_size=crop_size,
        patch_size=14,
        layer_scale_init=1.0,
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2.lvd142m'
        ),
    ),
    decode_head=dict(in_channels=384, channels=128, num_classes=11),
)
_base_.train_dataloader.dataset.pipeline[2].scale = scale
_base_.train_dataloader.dataset.pipeline[3].crop_size = crop_size
_base_.val_dataloader.dataset.pipeline[1].scale = scale
_base_.test_dataloader.dataset.pipeline[1].scale = scale
train_dataloader = dict(batch_size=4)
optim_wrapper = dict(optimizer=dict(lr=1e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-6, begin=50, end=600, by_epoch=False),
]
train_cfg = dict(max_iters=600, val_interval=600)
default_hooks = dict(checkpoint=dict(interval=100, max_keep_ckpts=1))
