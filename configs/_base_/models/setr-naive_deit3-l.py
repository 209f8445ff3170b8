# SETR with the naive decoder and three auxiliary heads on DeiT3-L, 150 classes. As in
# SN-Netv2's code and parameter counts, blocks have relative position biases,
# initialised to zero and trained.
norm_cfg = dict(type='SyncBN', requires_grad=True)
auxiliary_head = dict(
    type='SETRUPHead',
    in_channels=1024,
    channels=256,
    num_classes=150,
    dropout_ratio=0,
    norm_cfg=norm_cfg,
    num_convs=2,
    kernel_size=1,
    align_corners=False,
    loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=0.4),
)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(512, 512),
    ),
    pretrained=None,
    backbone=dict(
        type='PlainViT',
        arch='large',
        img_size=512,
        rel_pos_bias=True,
        out_indices=(9, 14, 19, 23),
        drop_path_rate=0.1,
        init_cfg=dict(
            type='Pretrained', checkpoint='checkpoints/deit_3_large_224_21k.pth'
        ),
    ),
    decode_head=dict(
        type='SETRUPHead',
        in_channels=1024,
        channels=256,
        in_index=3,
        num_classes=150,
        dropout_ratio=0,
        norm_cfg=norm_cfg,
        num_convs=1,
        up_scale=4,
        kernel_size=1,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
    auxiliary_head=[dict(in_index=i, **auxiliary_head) for i in range(3)],
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
