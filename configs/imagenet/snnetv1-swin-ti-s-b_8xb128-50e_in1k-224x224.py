# SN-Netv1 of Swin-Ti, S and B of ImageNet-22K on ImageNet-1K, 41 stitches in the
# first three stages, with RegNetY-160 as the teacher (SN-Netv1, section 4.1). 8 GPUs,
# batch 1024. Paper: curve only; the authors' file: 79.5 - 84.2 top-1 at 4.5 - 15.5
# GFLOPs. Ours: not yet run.
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
    _delete_=True,
    type='DistillationWrapper',
    model=dict(
        _base_.model,
        backbone=dict(
            _base_.model.backbone,
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
            _base_.model.head,
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
# As in the authors' code: every GPU draws its own stitch uniformly, and all are tested
# with the batch norm statistics of training.
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler', per_rank=True)
    ),
    stitch_statistics=dict(num_images=0),
)
