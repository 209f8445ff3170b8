# The fast anchor of the demo pair, trained from scratch: 4 blocks, width 16, patch 8.
# CPU, batch 16. No figure in the paper; measured: see README.md.
_base_ = [
    '../_base_/models/setr-naive_vit.py',
    '../_base_/datasets/toy_scenes_64x64.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/default_runtime.py',
]
model = dict(
    data_preprocessor=dict(size=(64, 64)),
    backbone=dict(
        arch=dict(embed_dims=16, depth=4, num_heads=2),
        img_size=64,
        patch_size=8,
        layer_scale_init=None,
    ),
    decode_head=dict(
        in_channels=16,
        channels=32,
        num_classes=5,
        num_convs=2,
        up_scale=2,
        kernel_size=3,
    ),
)
optim_wrapper = dict(optimizer=dict(lr=3e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=30, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=30, end=300, by_epoch=False),
]
train_cfg = dict(max_iters=300, val_interval=300)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
