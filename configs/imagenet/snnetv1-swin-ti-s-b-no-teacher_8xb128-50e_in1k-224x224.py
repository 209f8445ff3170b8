# SN-Netv1 of Swin-Ti, S and B on ImageNet-1K, 41 stitches, without a teacher.
# 8 GPUs, batch 1024. No figure in the paper. Ours: not yet run.
_base_ = ['../_base_/snnetv1_in1k_50e.py']
ti_checkpoint = 'timm://swin_tiny_patch4_window7_224.ms_in22k_ft_in1k'
s_checkpoint = 'timm://swin_small_patch4_window7_224.ms_in22k_ft_in1k'
b_checkpoint = 'timm://swin_base_patch4_window7_224.ms_in22k_ft_in1k'
model = dict(
    backbone=dict(
        type='SNNetv1',
        anchors=[
            dict(
                type='TimmStageAnchor',
                model=f'swin_{size}_patch4_window7_224',
                drop_path_rate=0.2,
                init_cfg=dict(type='Pretrained', checkpoint=file),
            )
            for size, file in (
                ('tiny', ti_checkpoint),
                ('small', s_checkpoint),
                ('base', b_checkpoint),
            )
        ],
        stages=(0, 1, 2),
        share_layers=True,
    ),
    head=dict(
        anchor_heads=[
            dict(
                in_channels=dim,
                pooling='norm-mean',
                norm_eps=1e-5,
                init_cfg=dict(type='Pretrained', checkpoint=file),
            )
            for dim, file in (
                (768, ti_checkpoint),
                (768, s_checkpoint),
                (1024, b_checkpoint),
            )
        ],
    ),
)
# Swin trains without repeated augmentation.
train_dataloader = dict(sampler=dict(_delete_=True, type='SeededSampler', shuffle=True))
# The anchors are trained at a tenth of this rate.
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
