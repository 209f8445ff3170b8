# SN-Netv1 of ResNet-18 and 50 on ImageNet-1K, 8 stitches in the second and third stage
# (SN-Netv1, section 4.1). 8 GPUs, batch 1024. Paper: 68.3 - 77.5 top-1 at 1.8 - 4.1
# GFLOPs (the authors' published file). Ours: not yet run.
_base_ = [
    '../_base_/models/cls_timm_stages.py',
    '../_base_/datasets/imagenet_224x224_timm.py',
    '../_base_/schedules/sgd_cosine_30e.py',
    '../_base_/stitched_cls_runtime.py',
]
r18_checkpoint = 'timm://resnet18.tv_in1k'
r50_checkpoint = 'timm://resnet50.tv_in1k'
model = dict(
    data_preprocessor=dict(num_classes=1000),
    backbone=dict(
        type='SNNetv1',
        anchors=[
            dict(
                type='TimmStageAnchor',
                model='resnet18',
                init_cfg=dict(type='Pretrained', checkpoint=r18_checkpoint),
            ),
            dict(
                type='TimmStageAnchor',
                model='resnet50',
                init_cfg=dict(type='Pretrained', checkpoint=r50_checkpoint),
            ),
        ],
        stages=(1, 2),
    ),
    head=dict(
        num_classes=1000,
        ends=[
            dict(
                in_channels=512,
                pooling='mean',
                norm=None,
                init_cfg=dict(type='Pretrained', checkpoint=r18_checkpoint),
            ),
            dict(
                in_channels=2048,
                pooling='mean',
                norm=None,
                init_cfg=dict(type='Pretrained', checkpoint=r50_checkpoint),
            ),
        ],
    ),
)
_base_.custom_hooks[1].sampler = dict(type='UniformSampler')
