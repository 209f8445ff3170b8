# SN-Netv1 on the tiny Swin pair: 7 stitches in all three stages, uniform sampling,
# anchors at a tenth of the learning rate (SN-Netv1, section 4.1). One CPU core, batch
# 64. No figure in the paper; top-1 31.1 to 34.3 measured.
_base_ = [
    '../../_base_/models/cls_vit.py',
    '../../_base_/datasets/tinyimagenet20_64x64.py',
    '../../_base_/schedules/adamw_cosine.py',
    '../../_base_/stitched_cls_runtime.py',
]
fast_checkpoint = 'work_dirs/swin-fast_1xb64-1000_tinyimagenet20-64x64/iter_1000.pth'
slow_checkpoint = 'work_dirs/swin-slow_1xb64-1000_tinyimagenet20-64x64/iter_1000.pth'
anchor = dict(type='TimmStageAnchor', model='swin_tiny_patch4_window7_224', img_size=64)
swin = dict(window_size=4, patch_size=4)
end = dict(pooling='norm-mean', norm_eps=1e-5)
weights = dict(type='Pretrained', prefix='backbone.')
model = dict(
    backbone=dict(
        type='SNNetv1',
        out='end',
        anchors=[
            dict(
                model_args=dict(
                    embed_dim=24, depths=(2, 2, 2), num_heads=(2, 4, 8), **swin
                ),
                **anchor,
                init_cfg=dict(weights, checkpoint=fast_checkpoint),
            ),
            dict(
                model_args=dict(
                    embed_dim=36, depths=(2, 2, 6), num_heads=(3, 6, 12), **swin
                ),
                **anchor,
                drop_path_rate=0.1,
                init_cfg=dict(weights, checkpoint=slow_checkpoint),
            ),
        ],
        stages=(0, 1, 2),
    ),
    head=dict(
        num_classes=20,
        anchor_heads=[
            dict(
                in_channels=dim,
                init_cfg=dict(weights, checkpoint=file, prefix='head.anchor_heads.0.'),
                **end,
            )
            for dim, file in ((96, fast_checkpoint), (144, slow_checkpoint))
        ],
    ),
)
optim_wrapper = dict(
    constructor='AnchorLayerDecayConstructor',
    paramwise_cfg=dict(
        _delete_=True,
        decay_rates=1.0,
        lr_mults={'backbone.anchors': 0.1, 'head.anchor_heads': 0.1},
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=30, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=30, end=600, by_epoch=False),
]
train_cfg = dict(max_iters=600, val_interval=600)
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler'))
)
