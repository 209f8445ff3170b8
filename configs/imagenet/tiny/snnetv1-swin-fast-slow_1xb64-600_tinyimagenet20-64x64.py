# SN-Netv1 on the tiny Swin pair: 7 stitches in all three stages, uniform sampling,
# anchors at a tenth of the learning rate (SN-Netv1, section 4.1). One CPU core, batch
# 64. No figure in the paper; top-1 31.1 to 34.3 measured.
_base_ = ['../../_base_/snnetv1_tiny_600.py']
fast_checkpoint = 'work_dirs/swin-fast_1xb64-1000_tinyimagenet20-64x64/iter_1000.pth'
slow_checkpoint = 'work_dirs/swin-slow_1xb64-1000_tinyimagenet20-64x64/iter_1000.pth'
anchor = dict(type='TimmStageAnchor', model='swin_tiny_patch4_window7_224', img_size=64)
swin = dict(window_size=4, patch_size=4)
end = dict(pooling='norm-mean', norm_eps=1e-5)
weights = dict(type='Pretrained', prefix='backbone.')
model = dict(
    backbone=dict(
        type='SNNetv1',
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
