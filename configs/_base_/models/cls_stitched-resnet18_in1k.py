# SN-Netv1 of ResNet-18 and a slower network on ImageNet-1K, stitched in the second and
# the third stage; the slower network is added by the configs that inherit it.
r18_checkpoint = 'timm://resnet18.tv_in1k'
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(
        type='ClsDataPreprocessor',
        num_classes=1000,
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        to_rgb=True,
    ),
    backbone=dict(
        type='SNNetv1',
        out='end',
        anchors=[
            dict(
                type='TimmStageAnchor',
                model='resnet18',
                init_cfg=dict(type='Pretrained', checkpoint=r18_checkpoint),
            )
        ],
        stages=(1, 2),
        share_layers=True,
    ),
    head=dict(
        type='StitchedClsHead',
        num_classes=1000,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        anchor_heads=[
            dict(
                in_channels=512,
                pooling='mean',
                norm=None,
                init_cfg=dict(type='Pretrained', checkpoint=r18_checkpoint),
            )
        ],
    ),
)
