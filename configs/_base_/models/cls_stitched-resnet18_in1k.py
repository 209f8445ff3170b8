# SN-Netv1 of ResNet-18 and a slower network on ImageNet-1K, stitched in the second and
# the third stage; the slower network is added by the configs that inherit it.
_base_ = ['./cls_timm_stages.py']
r18_checkpoint = 'timm://resnet18.tv_in1k'
model = dict(
    data_preprocessor=dict(num_classes=1000),
    backbone=dict(
        type='SNNetv1',
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
        num_classes=1000,
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
