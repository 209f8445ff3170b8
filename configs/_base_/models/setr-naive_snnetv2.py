# SETR with the naive decoder on a stitched backbone; anchors and classes are set by the
# configs that inherit it.
norm_cfg = dict(type='BN', requires_grad=True)
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
    backbone=dict(
        type='SNNetv2',
        anchors=[dict(type='PlainViT'), dict(type='PlainViT')],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
    ),
    decode_head=dict(
        type='SETRUPHead',
        in_channels=None,
        channels=256,
        in_index=-1,
        num_classes=None,
        dropout_ratio=0,
        norm_cfg=norm_cfg,
        num_convs=1,
        up_scale=4,
        kernel_size=1,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
