# SN-Netv1 of ResNet-18 and 50 on ImageNet-1K, 10 stitches, without a teacher.
# 8 GPUs, batch 1024. No figure in the paper. Ours: not yet run.
_base_ = [
    '../_base_/models/cls_stitched-resnet18_in1k.py',
    '../_base_/datasets/imagenet_224x224_timm.py',
    '../_base_/schedules/sgd_cosine_30e.py',
    '../_base_/snnetv1_in1k_runtime.py',
]
r50_checkpoint = 'timm://resnet50.a1_in1k'
model = dict(
    backbone=dict(
        anchors=[
            *_base_.model.backbone.anchors,
            dict(
                type='TimmStageAnchor',
                model='resnet50',
                init_cfg=dict(type='Pretrained', checkpoint=r50_checkpoint),
            ),
        ]
    ),
    head=dict(
        anchor_heads=[
            *_base_.model.head.anchor_heads,
            dict(
                in_channels=2048,
                pooling='mean',
                norm=None,
                init_cfg=dict(type='Pretrained', checkpoint=r50_checkpoint),
            ),
        ]
    ),
)
