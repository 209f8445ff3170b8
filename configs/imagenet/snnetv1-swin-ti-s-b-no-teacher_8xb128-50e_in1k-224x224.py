# SN-Netv1 of Swin-Ti, S and B on ImageNet-1K, 38 stitches, without a teacher.
# 8 GPUs, batch 1024. No figure in the paper. Ours: not yet run.
_base_ = [
    '../_base_/models/cls_vit_in1k.py',
    '../_base_/datasets/imagenet_224x224_deit.py',
    '../_base_/schedules/adamw_cosine_50e.py',
    '../_base_/snnetv1_in1k_runtime.py',
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
                drop_path_rate=0.2,
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
# A tenth of it for the anchors.
optim_wrapper = dict(
    optimizer=dict(lr=1e-3),
    constructor='AnchorLayerDecayConstructor',
    paramwise_cfg=dict(
        _delete_=True,
        decay_rates=1.0,
        lr_mults={'backbone.anchors': 0.1, 'head.anchor_heads': 0.1},
    ),
    clip_grad=dict(max_norm=5.0),
)
