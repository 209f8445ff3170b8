# SN-Netv1 of ResNet-18 and 50 on ImageNet-1K, 8 stitches in the second and third stage
# (SN-Netv1, section 4.1). 8 GPUs, batch 1024. Paper: 68.3 - 77.5 top-1 at 1.8 - 4.1
# GFLOPs (the authors' published file). Ours: not yet run.
_base_ = [
    '../_base_/models/cls_stitched-resnet18_in1k.py',
    '../_base_/datasets/imagenet_224x224_timm.py',
    '../_base_/schedules/sgd_cosine_30e.py',
    '../_base_/stitched_cls_runtime.py',
]
r50_checkpoint = 'timm://resnet50.tv_in1k'
model = dict(
    backbone=dict(
        anchors=[
            *_base_.model.backbone.anchors,
            dict(
                type='TimmStageAnchor',
                model='resnet50',
                init_cfg=dict(type='Pretrained', checkpoint=r50_checkpoint),
            ),
        ],
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
        ],
    ),
)
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler'))
)
