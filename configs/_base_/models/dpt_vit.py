# DPT's depth model on one plain ViT; width and depth are set by the configs that
# inherit it.
model = dict(
    type='DPTDepthEstimator',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=0,
        size=None,
        test_cfg=dict(size_divisor=16),
    ),
    pretrained=None,
    backbone=dict(type='PlainViT', with_cls=True),
    decode_head=dict(
        type='DPTDepthHead',
        in_channels=None,
        channels=256,
        post_process_channels=(96, 192, 384, 768),
        readout_type='project',
        min_depth=1e-3,
        max_depth=10,
        norm_cfg=None,
        loss_decode=dict(type='ScaleInvariantLogLoss', warm_up_iters=100),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole', flip=True),
)
