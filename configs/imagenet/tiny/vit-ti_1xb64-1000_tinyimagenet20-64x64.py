# The fastest anchor of the tiny family, trained from scratch: 6 blocks, width 32,
# patch 16. The family's widths 32, 64 and 128 have the ratio of DeiT-Ti, S and B. One
# CPU core, batch 64. No figure in the paper; measured: see ../small_scale.md.
_base_ = [
    '../../_base_/models/cls_vit.py',
    '../../_base_/datasets/tinyimagenet20_64x64.py',
    '../../_base_/schedules/adamw_cosine.py',
    '../../_base_/cls_runtime.py',
]
model = dict(
    backbone=dict(
        arch=dict(embed_dims=32, depth=6, num_heads=1),
        img_size=64,
        patch_size=16,
        layer_scale_init=None,
    ),
    head=dict(num_classes=20, anchor_heads=[dict(in_channels=32)]),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=100, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=100, end=1000, by_epoch=False),
]
train_cfg = dict(max_iters=1000)
