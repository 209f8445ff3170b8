# A linear head on a stitched backbone: one 1x1 convolution on the last map, which the
# anchor's own layer norm normalises. Anchors, width, size and classes are set by the
# configs that inherit it.
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
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
    ),
    decode_head=dict(
        type='FCNHead',
        in_channels=None,
        channels=None,
        in_index=-1,
        num_convs=0,
        concat_input=False,
        num_classes=None,
        dropout_ratio=0,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
