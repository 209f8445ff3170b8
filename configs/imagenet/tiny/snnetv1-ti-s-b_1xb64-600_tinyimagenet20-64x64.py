# SN-Netv1 on the whole tiny family: sliding windows of 2 with stride 1 over three
# anchors of equal depth, uniform sampling (SN-Netv1 paper, figure 6). One CPU core,
# batch 64; measured: see ../small_scale.md.
_base_ = [
    '../../_base_/models/cls_tiny-ti-b.py',
    '../../_base_/datasets/tinyimagenet20_64x64.py',
    '../../_base_/schedules/adamw_cosine.py',
    '../../_base_/stitched_cls_runtime.py',
]
# Inserts S between the two anchors of the base config.
s_checkpoint = 'work_dirs/vit-s_1xb64-1000_tinyimagenet20-64x64/iter_1000.pth'
model = dict(
    backbone=dict(
        type='SNNetv1',
        anchors=[
            _base_.model.backbone.anchors[0],
            dict(
                arch=dict(embed_dims=64, depth=6, num_heads=2),
                init_cfg=dict(
                    type='Pretrained', checkpoint=s_checkpoint, prefix='backbone.'
                ),
                **_base_.anchor,
            ),
            _base_.model.backbone.anchors[1],
        ],
        kernel=2,
        stride=1,
    ),
    head=dict(
        anchor_heads=[
            _base_.model.head.anchor_heads[0],
            dict(
                in_channels=64,
                init_cfg=dict(
                    type='Pretrained',
                    checkpoint=s_checkpoint,
                    prefix='head.anchor_heads.0.',
                ),
            ),
            _base_.model.head.anchor_heads[1],
        ],
    ),
)
optim_wrapper = dict(optimizer=dict(lr=5e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=30, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=30, end=600, by_epoch=False),
]
train_cfg = dict(max_iters=600, val_interval=600)
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler'))
)
