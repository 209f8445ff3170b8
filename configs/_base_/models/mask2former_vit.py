# Mask2Former for semantic segmentation on one plain ViT: a pyramid of its last map, and
# transformers of half the stock width and depth. Requires mmdet.
strides = [4, 8, 16, 32]
channels = 128
attention = dict(embed_dims=channels, num_heads=4, dropout=0.0, batch_first=True)
positions = dict(num_feats=channels // 2, normalize=True)
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
    backbone=dict(type='PlainViT'),
    neck=dict(
        type='SimpleFeaturePyramid',
        in_channels=None,
        out_channels=channels,
        in_stride=16,
        strides=strides,
    ),
    decode_head=dict(
        type='Mask2FormerHead',
        in_channels=[channels] * 4,
        strides=strides,
        feat_channels=channels,
        out_channels=channels,
        num_classes=None,
        num_queries=50,
        num_transformer_feat_level=3,
        align_corners=False,
        pixel_decoder=dict(
            type='mmdet.MSDeformAttnPixelDecoder',
            num_outs=3,
            norm_cfg=dict(type='GN', num_groups=32),
            act_cfg=dict(type='ReLU'),
            encoder=dict(
                num_layers=3,
                layer_cfg=dict(
                    self_attn_cfg=dict(num_levels=3, num_points=4, **attention),
                    ffn_cfg=dict(embed_dims=channels, feedforward_channels=512),
                ),
            ),
            positional_encoding=positions,
        ),
        positional_encoding=positions,
        transformer_decoder=dict(
            return_intermediate=True,
            num_layers=3,
            layer_cfg=dict(
                self_attn_cfg=attention,
                cross_attn_cfg=attention,
                ffn_cfg=dict(embed_dims=channels, feedforward_channels=1024),
            ),
        ),
        loss_cls=dict(
            type='mmdet.CrossEntropyLoss', loss_weight=2.0, class_weight=None
        ),
        loss_mask=dict(
            type='mmdet.CrossEntropyLoss', use_sigmoid=True, loss_weight=5.0
        ),
        loss_dice=dict(
            type='mmdet.DiceLoss', naive_dice=True, eps=1.0, loss_weight=5.0
        ),
        train_cfg=dict(
            num_points=2048,
            oversample_ratio=3.0,
            importance_sample_ratio=0.75,
            assigner=dict(
                type='mmdet.HungarianAssigner',
                match_costs=[
                    dict(type='mmdet.ClassificationCost', weight=2.0),
                    dict(
                        type='mmdet.CrossEntropyLossCost', weight=5.0, use_sigmoid=True
                    ),
                    dict(type='mmdet.DiceCost', weight=5.0, pred_act=True, eps=1.0),
                ],
            ),
            sampler=dict(type='mmdet.MaskPseudoSampler'),
        ),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
