# SN-Netv2 of DeiT3-S and DeiT3-L on ImageNet-1K, 134 stitches (section 5.1). 8 GPUs,
# batch 256. Paper: curve only; the authors' file of rank 64 and batch 512: 82.9 -
# 87.0 top-1 at 4.6 - 61.6 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/cls_vit_in1k.py',
    '../_base_/datasets/imagenet_224x224_deit3.py',
    '../_base_/schedules/lamb_cosine_50e.py',
    '../_base_/stitched_cls_runtime.py',
]
fast_checkpoint = 'checkpoints/deit_3_small_224_21k.pth'
slow_checkpoint = 'checkpoints/deit_3_large_224_21k.pth'
# DeiT3 drops all blocks at the same rate.
anchor = dict(type='PlainViT', img_size=224, drop_path_uniform=True)
model = dict(
    backbone=dict(
        type='SNNetv2',
        anchors=[
            dict(
                arch=arch,
                drop_path_rate=rate,
                init_cfg=dict(type='Pretrained', checkpoint=file),
                **anchor,
            )
            for arch, rate, file in (
                ('small', 0.05, fast_checkpoint),
                ('large', 0.4, slow_checkpoint),
            )
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
    ),
    head=dict(
        anchor_heads=[
            dict(in_channels=dim, init_cfg=dict(type='Pretrained', checkpoint=file))
            for dim, file in ((384, fast_checkpoint), (1024, slow_checkpoint))
        ],
    ),
    # As in DeiT3's finetuning.
    train_cfg=dict(augments=[dict(type='CutMix', alpha=1.0)]),
)
# Every GPU draws its own stitch, as in the authors' classifiers.
default_hooks = dict(stitch_sampling=dict(sampler=dict(per_rank=True)))
