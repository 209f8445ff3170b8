# SN-Netv1 of LeViT-192 and 256 on ImageNet-1K, 8 stitches in the first two stages,
# with RegNetY-160 as the teacher (SN-Netv1, appendix G). 8 GPUs, batch 1024. Paper:
# 80.7 top-1 at 0.98 GFLOPs; the authors' file: 79.4 - 81.2 at 0.66 - 1.13. Ours:
# not yet run.
_base_ = [
    '../_base_/models/cls_vit_in1k.py',
    '../_base_/datasets/imagenet_224x224_deit.py',
    '../_base_/schedules/adamw_cosine_50e.py',
    '../_base_/stitched_cls_runtime.py',
]
levit_192_checkpoint = 'timm://levit_192.fb_dist_in1k'
levit_256_checkpoint = 'timm://levit_256.fb_dist_in1k'
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
                    model=model,
                    init_cfg=dict(type='Pretrained', checkpoint=file),
                )
                for model, file in (
                    ('levit_192', levit_192_checkpoint),
                    ('levit_256', levit_256_checkpoint),
                )
            ],
            stages=(0, 1),
            share_layers=True,
        ),
        head=dict(
            _base_.model.head,
            anchor_heads=[
                dict(
                    in_channels=dim,
                    pooling='mean',
                    norm='BN',
                    distilled=True,
                    init_cfg=dict(type='Pretrained', checkpoint=file),
                )
                for dim, file in (
                    (384, levit_192_checkpoint),
                    (512, levit_256_checkpoint),
                )
            ],
        ),
    ),
)
# LeViT's recipe: lower weight decay, gradients clipped relative to weight norms.
optim_wrapper = dict(optimizer=dict(weight_decay=0.025))
# As in the authors' code: every GPU draws its own stitch uniformly, and all are tested
# with the batch norm statistics of training.
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler', per_rank=True)
    ),
    grad_clip=dict(type='AdaptiveGradClipHook', clip_factor=0.01),
    stitch_statistics=dict(num_images=0),
)
param_scheduler = [
    _base_.param_scheduler[0],
    dict(_base_.param_scheduler[1], end=125200),
]
train_cfg = dict(max_iters=125200)
