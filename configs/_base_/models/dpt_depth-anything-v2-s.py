# Depth Anything V2-S of metric depth, for 420x546 crops: 30x39 patches of 14 pixels.
_base_ = ['./dpt_vit.py']
model = dict(
    data_preprocessor=dict(
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        size=(420, 546),
        test_cfg=dict(size_divisor=14),
    ),
    backbone=dict(
        _delete_=True,
        type='TimmAnchor',
        model='vit_small_patch14_dinov2',
        img_size=518,
        final_norm=False,
        out_indices=(2, 5, 8, 11),
    ),
    neck=dict(
        type='NormPerMap',
        in_channels=[384] * 4,
        norm_cfg=dict(type='MapLayerNorm'),
    ),
    decode_head=dict(
        _delete_=True,
        type='DepthAnythingHead',
        in_channels=384,
        channels=64,
        post_process_channels=(48, 96, 192, 384),
        max_depth=20,
    ),
)
