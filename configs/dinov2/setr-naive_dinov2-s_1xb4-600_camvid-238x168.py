# DINOv2 ViT-S/14 fine-tuned on CamVid, the slow anchor of the pair: 12 blocks, width
# 384. One CPU core, batch 4. No figure in the paper; measured: see README.md.
_base_ = [
    '../_base_/models/setr-naive_vit.py',
    '../_base_/datasets/camvid_238x168.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/default_runtime.py',
]
model = dict(
    data_preprocessor=dict(size=_base_.crop_size),
    backbone=dict(
        arch='small',
        img_size=_base_.crop_size,
        patch_size=14,
        pos_embed_antialias=True,
        layer_scale_init=1.0,
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2.lvd142m'
        ),
    ),
    decode_head=dict(in_channels=384, channels=128, num_classes=11),
)
# The head learns from scratch; at its rate the pretrained blocks would forget.
optim_wrapper = dict(
    optimizer=dict(lr=1e-3),
    paramwise_cfg=dict(custom_keys=dict(_delete_=True, backbone=dict(lr_mult=0.03))),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-6, begin=50, end=600, by_epoch=False),
]
train_cfg = dict(max_iters=600, val_interval=600)
default_hooks = dict(checkpoint=dict(interval=100, max_keep_ckpts=1))
