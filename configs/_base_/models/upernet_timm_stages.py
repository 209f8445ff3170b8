# UPerNet on one network of timm that has stages, with a norm per map, as in mmseg's
# Swin; the network, its widths and the classes are set by the configs that inherit it.
norm_cfg = dict(type='SyncBN', requires_grad=True)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=None,
    ),
    pretrained=None,
    backbone=dict(type='TimmStageAnchor'),
    neck=dict(type='NormPerMap', in_channels=None),
    decode_head=dict(
        type='UPerHead',
        in_channels=None,
        in_index=(0, 1, 2, 3),
        pool_scales=(1, 2, 3, 6),
        channels=512,
        dropout_ratio=0.1,
        num_classes=None,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
