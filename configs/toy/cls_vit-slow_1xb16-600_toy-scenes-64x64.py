# The slow anchor of the classification demo, 8 blocks of width 96, on generated scenes.
# CPU, batch 16. No figure in the paper; measured: see tasks.md.
_base_ = [
    '../_base_/models/cls_vit.py',
    '../_base_/datasets/toy_labels_64x64.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/cls_runtime.py',
]
model = dict(
    backbone=dict(
        arch=dict(embed_dims=96, depth=8, num_heads=4),
        img_size=64,
        patch_size=8,
        layer_scale_init=None,
    ),
    head=dict(num_classes=3, anchor_heads=[dict(in_channels=96)]),
)
optim_wrapper = dict(optimizer=dict(lr=3e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=60, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=60, end=600, by_epoch=False),
]
train_cfg = dict(max_iters=600, val_interval=600)
