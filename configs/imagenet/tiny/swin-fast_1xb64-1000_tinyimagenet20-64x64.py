# The fast anchor of the tiny Swin pair, trained from scratch: 2-2-2 blocks in three
# stages of strides 4, 8 and 16, width 24 in the first, windows of 4. One CPU core,
# batch 64. No figure in the paper; top-1 31.7 measured.
_base_ = [
    '../../_base_/models/cls_vit.py',
    '../../_base_/datasets/tinyimagenet20_64x64.py',
    '../../_base_/schedules/adamw_cosine.py',
    '../../_base_/cls_runtime.py',
]
model = dict(
    backbone=dict(
        _delete_=True,
        type='TimmStageAnchor',
        out='end',
        model='swin_tiny_patch4_window7_224',
        model_args=dict(
            embed_dim=24,
            depths=(2, 2, 2),
            num_heads=(2, 4, 8),
            window_size=4,
            patch_size=4,
        ),
        img_size=64,
    ),
    head=dict(
        num_classes=20,
        anchor_heads=[dict(in_channels=96, pooling='norm-mean', norm_eps=1e-5)],
    ),
)
optim_wrapper = dict(
    paramwise_cfg=dict(custom_keys=dict(relative_position_bias=dict(decay_mult=0)))
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=100, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=100, end=1000, by_epoch=False),
]
train_cfg = dict(max_iters=1000)
