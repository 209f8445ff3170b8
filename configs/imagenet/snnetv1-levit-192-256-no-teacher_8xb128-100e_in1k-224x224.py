# SN-Netv1 of LeViT-192 and 256 on ImageNet-1K, 6 stitches, without a teacher.
# 8 GPUs, batch 1024. No figure in the paper. Ours: not yet run.
_base_ = [
    '../_base_/models/cls_vit_in1k.py',
    '../_base_/datasets/imagenet_224x224_deit.py',
    '../_base_/schedules/adamw_cosine_50e.py',
    '../_base_/snnetv1_in1k_runtime.py',
]
levit_192_checkpoint = 'timm://levit_192.fb_dist_in1k'
levit_256_checkpoint = 'timm://levit_256.fb_dist_in1k'
model = dict(
    backbone=dict(
        type='SNNetv1',
        anchors=[
            dict(
                type='TimmStageAnchor',
                model='levit_192',
                init_cfg=dict(type='Pretrained', checkpoint=levit_192_checkpoint),
            ),
            dict(
                type='TimmStageAnchor',
                model='levit_256',
                init_cfg=dict(type='Pretrained', checkpoint=levit_256_checkpoint),
            ),
        ],
        stages=(0, 1),
    ),
    head=dict(
        anchor_heads=[
            dict(
                in_channels=384,
                pooling='mean',
                norm='BN',
                distilled=True,
                init_cfg=dict(type='Pretrained', checkpoint=levit_192_checkpoint),
            ),
            dict(
                in_channels=512,
                pooling='mean',
                norm='BN',
                distilled=True,
                init_cfg=dict(type='Pretrained', checkpoint=levit_256_checkpoint),
            ),
        ],
    ),
)
# LeViT's recipe: weights decay less, gradients are clipped by the norms of weights.
optim_wrapper = dict(optimizer=dict(weight_decay=0.025))
default_hooks = dict(grad_clip=dict(type='AdaptiveGradClipHook', clip_factor=0.01))
param_scheduler = [
    _base_.param_scheduler[0],
    dict(_base_.param_scheduler[1], end=125200),
]
train_cfg = dict(max_iters=125200)
