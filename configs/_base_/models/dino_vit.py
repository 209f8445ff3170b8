# DINO, the detector, on one plain ViT: a pyramid of its last map, and transformers of
# half the stock width and depth.
channels = 128
attention = dict(embed_dims=channels, dropout=0.0)
deformable = dict(num_levels=4, **attention)
ffn = dict(embed_dims=channels, feedforward_channels=512)
model = dict(
    type='DINO',
    num_queries=300,
    with_box_refine=True,
    as_two_stage=True,
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=64,
    ),
    backbone=dict(type='PlainViT', cls_token=False),
    neck=dict(
        type='SimpleFeaturePyramid',
        in_channels=None,
        out_channels=channels,
        in_stride=16,
        strides=[8, 16, 32, 64],
    ),
    encoder=dict(num_layers=3, layer_cfg=dict(self_attn_cfg=deformable, ffn_cfg=ffn)),
    decoder=dict(
        num_layers=3,
        return_intermediate=True,
        layer_cfg=dict(
            self_attn_cfg=dict(num_heads=8, **attention),
            cross_attn_cfg=deformable,
            ffn_cfg=ffn,
        ),
        post_norm_cfg=None,
    ),
    positional_encoding=dict(
        num_feats=channels // 2, normalize=True, offset=0.0, temperature=20
    ),
    bbox_head=dict(
        type='DINOHead',
        embed_dims=channels,
        num_classes=80,
        sync_cls_avg_factor=True,
        loss_cls=dict(
            type='FocalLoss', use_sigmoid=True, gamma=2.0, alpha=0.25, loss_weight=1.0
        ),
        loss_bbox=dict(type='L1Loss', loss_weight=5.0),
        loss_iou=dict(type='GIoULoss', loss_weight=2.0),
    ),
    dn_cfg=dict(
        label_noise_scale=0.5,
        box_noise_scale=1.0,
        group_cfg=dict(dynamic=True, num_groups=None, num_dn_queries=100),
    ),
    train_cfg=dict(
        assigner=dict(
            type='HungarianAssigner',
            match_costs=[
                dict(type='FocalLossCost', weight=2.0),
                dict(type='BBoxL1Cost', weight=5.0, box_format='xywh'),
                dict(type='IoUCost', iou_mode='giou', weight=2.0),
            ],
        )
    ),
    test_cfg=dict(max_per_img=300),
)
