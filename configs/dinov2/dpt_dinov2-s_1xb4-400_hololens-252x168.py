# DINOv2 ViT-S/14 fine-tuned for depth on the HoloLens images, the slow anchor of the
# pair. One CPU core, batch 4. No figure in the paper; measured: see README.md.
_base_ = [
    '../_base_/models/dpt_vit.py',
    '../_base_/datasets/hololens_240x160.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg'], allow_failed_imports=False
)
# A size that DINOv2's patches divide.
crop_size = (126, 196)
_base_.train_dataloader.dataset.pipeline[2].scale = (252, 168)
_base_.train_dataloader.dataset.pipeline[5].crop_size = crop_size
_base_.val_dataloader.dataset.pipeline[1].scale = (252, 168)
_base_.test_dataloader.dataset.pipeline[1].scale = (252, 168)
train_dataloader = dict(batch_size=4)
auto_scale_lr = dict(base_batch_size=4)
model = dict(
    data_preprocessor=dict(
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        size=crop_size,
        test_cfg=dict(size_divisor=14),
    ),
    backbone=dict(
        arch='small',
        img_size=crop_size,
        patch_size=14,
        pos_embed_antialias=True,
        layer_scale_init=1.0,
        out_indices=(2, 5, 8, 11),
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2.lvd142m'
        ),
    ),
    decode_head=dict(
        in_channels=384,
        channels=64,
        post_process_channels=(48, 96, 192, 384),
        loss_decode=dict(warm_up_iters=20),
    ),
)
# The head learns from scratch; at 1e-3 its sigmoid saturates and never recovers.
optim_wrapper = dict(
    optimizer=dict(lr=3e-4),
    paramwise_cfg=dict(custom_keys=dict(_delete_=True, backbone=dict(lr_mult=0.1))),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=40, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-6, begin=40, end=400, by_epoch=False),
]
train_cfg = dict(max_iters=400, val_interval=400)
default_hooks = dict(checkpoint=dict(interval=100, max_keep_ckpts=1))
