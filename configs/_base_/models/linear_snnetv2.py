# A linear head on a stitched backbone: one 1x1 convolution on the last map, which the
# anchor's own layer norm normalises. Anchors, width, size and classes are set by the
# configs that inherit it.
_base_ = ['./setr-naive_vit.py']
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
    ),
    decode_head=dict(
        _delete_=True,
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
)
