# SN-Netv1 on the whole tiny family: sliding windows of 2 with stride 1 over three
# anchors of equal depth, uniform sampling (SN-Netv1 paper, figure 6). One CPU core,
# batch 64; measured: see README.md.
_base_ = [
    '../../_base_/models/cls_vit.py',
    '../../_base_/datasets/tinyimagenet20_64x64.py',
    '../../_base_/schedules/adamw_cosine_cls.py',
    '../../_base_/stitched_cls_runtime.py',
]
ti_checkpoint = 'work_dirs/vit-ti_1xb64-1000_tinyimagenet20-64x64/iter_1000.pth'
s_checkpoint = 'work_dirs/vit-s_1xb64-1000_tinyimagenet20-64x64/iter_1000.pth'
b_checkpoint = 'work_dirs/vit-b_1xb64-1000_tinyimagenet20-64x64/iter_1000.pth'
anchor = dict(type='PlainViT', img_size=64, patch_size=16, layer_scale_init=None)
model = dict(
    backbone=dict(
        type='SNNetv1',
        anchors=[
            dict(
                arch=dict(embed_dims=32, depth=6, num_heads=1),
                init_cfg=dict(
                    type='Pretrained', checkpoint=ti_checkpoint, prefix='backbone.'
                ),
                **anchor,
            ),
            dict(
                arch=dict(embed_dims=64, depth=6, num_heads=2),
                init_cfg=dict(
                    type='Pretrained', checkpoint=s_checkpoint, prefix='backbone.'
                ),
                **anchor,
            ),
            dict(
                arch=dict(embed_dims=128, depth=6, num_heads=4),
                drop_path_rate=0.1,
                init_cfg=dict(
                    type='Pretrained', checkpoint=b_checkpoint, prefix='backbone.'
                ),
                **anchor,
            ),
        ],
        kernel=2,
        stride=1,
    ),
    head=dict(
        num_classes=20,
        ends=[
            dict(
                in_channels=32,
                init_cfg=dict(
                    type='Pretrained', checkpoint=ti_checkpoint, prefix='head.ends.0.'
                ),
            ),
            dict(
                in_channels=64,
                init_cfg=dict(
                    type='Pretrained', checkpoint=s_checkpoint, prefix='head.ends.0.'
                ),
            ),
            dict(
                in_channels=128,
                init_cfg=dict(
                    type='Pretrained', checkpoint=b_checkpoint, prefix='head.ends.0.'
                ),
            ),
        ],
    ),
)
optim_wrapper = dict(optimizer=dict(lr=5e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=30, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=30, end=600, by_epoch=False),
]
train_cfg = dict(max_iters=600, val_interval=600)
default_hooks = dict(checkpoint=dict(interval=600))
_base_.custom_hooks[1].sampler = dict(type='UniformSampler')
