# SN-Netv1 of Swin-Ti, S and B of ImageNet-22K on ImageNet-1K, 38 stitches in the first
# three stages (SN-Netv1, section 4.1), without a teacher. 8 GPUs, batch 1024. Paper:
# 79.5 - 84.2 top-1 at 4.5 - 15.5 GFLOPs (the authors' published file). Ours:
# not yet run.
_base_ = [
    '../_base_/models/cls_vit_in1k.py',
    '../_base_/datasets/imagenet_224x224_deit.py',
    '../_base_/schedules/adamw_cosine_50e.py',
    '../_base_/stitched_cls_runtime.py',
]
ti_checkpoint = 'timm://swin_tiny_patch4_window7_224.ms_in22k_ft_in1k'
s_checkpoint = 'timm://swin_small_patch4_window7_224.ms_in22k_ft_in1k'
b_checkpoint = 'timm://swin_base_patch4_window7_224.ms_in22k_ft_in1k'
model = dict(
    backbone=dict(
        type='SNNetv1',
        anchors=[
            dict(
                type='TimmStageAnchor',
                model='swin_tiny_patch4_window7_224',
                drop_path_rate=0.1,
                init_cfg=dict(type='Pretrained', checkpoint=ti_checkpoint),
            ),
            dict(
                type='TimmStageAnchor',
                model='swin_small_patch4_window7_224',
                drop_path_rate=0.2,
                init_cfg=dict(type='Pretrained', checkpoint=s_checkpoint),
            ),
            dict(
                type='TimmStageAnchor',
                model='swin_base_patch4_window7_224',
                drop_path_rate=0.2,
                init_cfg=dict(type='Pretrained', checkpoint=b_checkpoint),
            ),
        ],
        stages=(0, 1, 2),
    ),
    head=dict(
        anchor_heads=[
            dict(
                in_channels=768,
                pooling='norm-mean',
                norm_eps=1e-5,
                init_cfg=dict(type='Pretrained', checkpoint=ti_checkpoint),
            ),
            dict(
                in_channels=768,
                pooling='norm-mean',
                norm_eps=1e-5,
                init_cfg=dict(type='Pretrained', checkpoint=s_checkpoint),
            ),
            dict(
                in_channels=1024,
                pooling='norm-mean',
                norm_eps=1e-5,
                init_cfg=dict(type='Pretrained', checkpoint=b_checkpoint),
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
    clip_grad=dict(max_norm=5.0),
)
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler'))
)
