# SN-Netv1 of DeiT-Ti, S and B on ImageNet-1K, 71 stitches, with RegNetY-160 as the
# teacher (SN-Netv1, section 4.1). 8 GPUs, batch 1024. Paper: 70.6 - 81.9 top-1 at 1.3 -
# 17.6 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/cls_vit_in1k.py',
    '../_base_/datasets/imagenet_224x224_deit.py',
    '../_base_/schedules/adamw_cosine_50e.py',
    '../_base_/stitched_cls_runtime.py',
]
ti_checkpoint = 'checkpoints/deit_tiny_patch16_224-a1311bcf.pth'
s_checkpoint = 'checkpoints/deit_small_patch16_224-cd65a155.pth'
b_checkpoint = 'checkpoints/deit_base_patch16_224-b5f2ef4d.pth'
anchor = dict(
    type='PlainViT',
    img_size=224,
    pos_embed_prefix=True,
    layer_scale_init=None,
    drop_path_rate=0.1,
)
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
                    arch=arch,
                    init_cfg=dict(type='Pretrained', checkpoint=file),
                    **anchor,
                )
                for arch, file in (
                    ('tiny', ti_checkpoint),
                    ('small', s_checkpoint),
                    ('base', b_checkpoint),
                )
            ],
            kernel=2,
            stride=1,
        ),
        head=dict(
            _base_.model.head,
            anchor_heads=[
                dict(in_channels=dim, init_cfg=dict(type='Pretrained', checkpoint=file))
                for dim, file in (
                    (192, ti_checkpoint),
                    (384, s_checkpoint),
                    (768, b_checkpoint),
                )
            ],
        ),
    ),
)
# As in the authors' code: every GPU draws its own stitch uniformly, and all are tested
# with the batch norm statistics of training.
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler', per_rank=True)
    ),
    stitch_statistics=dict(num_images=0),
)
