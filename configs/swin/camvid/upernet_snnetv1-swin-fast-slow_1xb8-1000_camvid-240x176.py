# SN-Netv1 on the CamVid Swin pair with UPerNet: 7 stitches in the first three stages
# and the two anchors, starting from the trained anchors and the slow anchor's norms and
# head. Anchors are trained at a tenth of the learning rate (SN-Netv1, section 4.1). One
# CPU core, batch 8. No figure in the paper; mIoU 40.97 to 41.75 measured.
_base_ = [
    '../../_base_/models/upernet_timm_stages.py',
    '../../_base_/datasets/camvid_240x176.py',
    '../../_base_/schedules/adamw_cosine.py',
    '../../_base_/stitched_runtime.py',
]
fast_checkpoint = 'work_dirs/upernet_swin-fast_1xb8-1000_camvid-240x176/iter_1000.pth'
slow_checkpoint = 'work_dirs/upernet_swin-slow_1xb8-1000_camvid-240x176/iter_1000.pth'
anchor = dict(
    type='TimmStageAnchor', model='swin_tiny_patch4_window7_224', img_size=(176, 240)
)
widths = [36, 72, 144, 288]
norm_cfg = dict(type='BN', requires_grad=True)
weights = dict(type='Pretrained', prefix='backbone.')
model = dict(
    data_preprocessor=dict(size=(176, 240)),
    backbone=dict(
        _delete_=True,
        type='SNNetv1',
        anchors=[
            dict(
                model_args=dict(
                    embed_dim=24,
                    depths=(2, 2, 2, 2),
                    num_heads=(2, 4, 8, 16),
                    window_size=4,
                ),
                init_cfg=dict(weights, checkpoint=fast_checkpoint),
                **anchor,
            ),
            dict(
                model_args=dict(
                    embed_dim=36,
                    depths=(2, 2, 6, 2),
                    num_heads=(3, 6, 12, 24),
                    window_size=4,
                ),
                drop_path_rate=0.1,
                init_cfg=dict(weights, checkpoint=slow_checkpoint),
                **anchor,
            ),
        ],
        stages=(0, 1, 2),
        out_indices=(1, 3, 9, 11),
    ),
    neck=dict(
        in_channels=widths,
        init_cfg=dict(weights, checkpoint=slow_checkpoint, prefix='neck.'),
    ),
    decode_head=dict(
        in_channels=widths,
        channels=32,
        num_classes=11,
        norm_cfg=norm_cfg,
        init_cfg=dict(weights, checkpoint=slow_checkpoint, prefix='decode_head.'),
    ),
)
optim_wrapper = dict(
    constructor='AnchorLayerDecayConstructor',
    paramwise_cfg=dict(
        _delete_=True, decay_rates=1.0, lr_mults={'backbone.anchors': 0.1}
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=100, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=100, end=1000, by_epoch=False),
]
train_cfg = dict(max_iters=1000)
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1),
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler')),
)
