# The slow anchor of the detection demo, trained from scratch: 8 blocks, width 96,
# patch 8. CPU, batch 8. No figure in the paper; measured: see tasks.md.
_base_ = [
    '../_base_/models/mask-rcnn_vit_toy.py',
    '../_base_/datasets/toy_objects_64x64.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/detection_runtime.py',
]
model = dict(
    backbone=dict(
        arch=dict(embed_dims=96, depth=8, num_heads=4),
        img_size=64,
        patch_size=8,
        layer_scale_init=None,
    ),
    neck=dict(in_channels=96),
)
optim_wrapper = dict(optimizer=dict(lr=1e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=30, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=30, end=300, by_epoch=False),
]
train_cfg = dict(max_iters=300, val_interval=300)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
