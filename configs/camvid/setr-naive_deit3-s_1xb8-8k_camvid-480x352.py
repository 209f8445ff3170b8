# DeiT3-S alone on CamVid at full size, the fast anchor of the GPU variant.
# 1 GPU, batch 8. No figure in the paper. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_vit.py',
    '../_base_/datasets/camvid_480x352.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/default_runtime.py',
]
model = dict(
    data_preprocessor=dict(size=(352, 480)),
    backbone=dict(
        arch='small',
        img_size=(352, 480),
        drop_path_rate=0.1,
        init_cfg=dict(
            type='Pretrained', checkpoint='checkpoints/deit_3_small_224_21k.pth'
        ),
    ),
    decode_head=dict(in_channels=384, num_classes=11),
)
optim_wrapper = dict(optimizer=dict(lr=6e-5))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=500, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=0, begin=500, end=8000, by_epoch=False),
]
train_cfg = dict(max_iters=8000, val_interval=2000)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
