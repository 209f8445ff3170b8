# SN-Netv2 on the fastest and the slowest anchor of the tiny family, 32 stitches: the
# last row of figure 11 of the paper. One CPU core, batch 64; measured: see
# ../small_scale.md.
_base_ = [
    '../../_base_/models/cls_tiny-ti-b.py',
    '../../_base_/datasets/tinyimagenet20_64x64.py',
    '../../_base_/schedules/adamw_cosine.py',
    '../../_base_/stitched_cls_runtime.py',
]
model = dict(
    backbone=dict(
        type='SNNetv2',
        # A lower rank, because the widths are about a tenth of DeiT3's.
        stitching_layer=dict(type='LoRAStitchingLayer', rank=4),
    ),
)
optim_wrapper = dict(optimizer=dict(lr=5e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=30, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=30, end=600, by_epoch=False),
]
train_cfg = dict(max_iters=600, val_interval=600)
default_hooks = dict(stitch_sampling=dict(sampler=dict(step=1.5e6)))
