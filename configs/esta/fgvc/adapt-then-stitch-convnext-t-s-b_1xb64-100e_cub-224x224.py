# "Adapt, then stitch" on CUB-200-2011 with ConvNeXt-T, S and B: the three
# full-convnext-* networks, stitched as SN-Net and trained in full with uniform sampling
# (ESTA, figure 9a). One GPU, batch 64. Paper: curve only. Ours: not yet run.
_base_ = ['./adapt-then-stitch-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
files = [
    f'work_dirs/full-convnext-{size}_1xb64-100e_cub-224x224/iter_8500.pth'
    for size in ('t', 's', 'b')
]
weights = dict(type='Pretrained')
anchors = [
    dict(
        type='TimmStageAnchor',
        model=f'convnext_{size}',
        img_size=224,
        init_cfg=dict(weights, checkpoint=file, prefix='backbone.'),
    )
    for size, file in zip(('tiny', 'small', 'base'), files, strict=True)
]
heads = [
    dict(
        in_channels=width,
        pooling='mean',
        init_cfg=dict(weights, checkpoint=file, prefix='head.anchor_heads.0.'),
    )
    for width, file in zip((768, 768, 1024), files, strict=True)
]
model = dict(
    backbone=dict(anchors=anchors, stages=(0, 1, 2)), head=dict(anchor_heads=heads)
)
