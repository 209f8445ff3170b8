# UPerNet and an auxiliary head on Swin-Ti, 150 classes, as in mmsegmentation.
_base_ = ['./upernet_timm_stages.py']
widths = [96, 192, 384, 768]
model = dict(
    data_preprocessor=dict(size=(512, 512)),
    backbone=dict(
        model='swin_tiny_patch4_window7_224',
        img_size=512,
        out_indices=(1, 3, 9, 11),
        drop_path_rate=0.3,
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://swin_tiny_patch4_window7_224.ms_in1k'
        ),
    ),
    neck=dict(in_channels=widths),
    decode_head=dict(in_channels=widths, num_classes=150),
    auxiliary_head=dict(
        type='FCNHead',
        in_channels=384,
        in_index=2,
        channels=256,
        num_convs=1,
        concat_input=False,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=dict(type='SyncBN', requires_grad=True),
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=0.4),
    ),
)
