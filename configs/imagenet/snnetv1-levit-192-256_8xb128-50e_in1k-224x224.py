# SN-Netv1 of LeViT-192 and 256 on ImageNet-1K, 6 stitches in the first two stages
# (SN-Netv1, appendix G, which names no schedule: that of DeiT and Swin). 8 GPUs, batch
# 1024. Paper: 79.4 - 81.2 top-1 at 0.66 - 1.13 GFLOPs (the authors' published file).
# Ours: not yet run.
_base_ = [
    '../_base_/models/cls_vit_in1k.py',
    '../_base_/datasets/imagenet_224x224_deit.py',
    '../_base_/schedules/adamw_cosine_50e.py',
    '../_base_/stitched_cls_runtime.py',
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
optim_wrapper = dict(
    constructor='AnchorLayerDecayConstructor',
    paramwise_cfg=dict(
        _delete_=True,
        decay_rates=1.0,
        lr_mults={'backbone.anchors': 0.1, 'head.anchor_heads': 0.1},
    ),
)
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler'))
)
