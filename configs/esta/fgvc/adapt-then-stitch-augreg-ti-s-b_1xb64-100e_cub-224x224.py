# "Adapt, then stitch" on CUB-200-2011: the three full-augreg-* networks, stitched as
# SN-Net and trained in full with uniform sampling (ESTA, figure 3). One GPU, batch 64.
# Paper: curve only. Ours: not yet run.
_base_ = ['./snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
classifier = _base_.model.model
files = [
    f'work_dirs/full-augreg-{size}_1xb64-100e_cub-224x224/iter_8500.pth'
    for size in ('ti', 's', 'b')
]
anchors = [
    dict(a, lora=None, init_cfg=dict(a.init_cfg, checkpoint=f, prefix='backbone.'))
    for a, f in zip(classifier.backbone.anchors, files, strict=True)
]
heads = [
    dict(
        h, init_cfg=dict(type='Pretrained', checkpoint=f, prefix='head.anchor_heads.0.')
    )
    for h, f in zip(classifier.head.anchor_heads, files, strict=True)
]
model = dict(
    _delete_=True,
    **dict(
        classifier,
        backbone=dict(
            classifier.backbone,
            anchors=anchors,
            stitching_layer=dict(type='StitchingLayer'),
            plugins=None,
        ),
        head=dict(classifier.head, anchor_heads=heads, num_classes=200),
    ),
)
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler'))
)
