# SN-Netv2 on the pair of the classification demo: 14 stitches, starting from the two
# trained anchors and their classifiers. CPU, batch 16. No figure in the paper;
# top-1 62 to 80 measured.
_base_ = [
    '../_base_/models/cls_vit.py',
    '../_base_/datasets/toy_labels_64x64.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/stitched_cls_runtime.py',
]
fast_checkpoint = 'work_dirs/cls_vit-fast_1xb16-600_toy-scenes-64x64/iter_600.pth'
slow_checkpoint = 'work_dirs/cls_vit-slow_1xb16-600_toy-scenes-64x64/iter_600.pth'
anchor = dict(type='PlainViT', img_size=64, patch_size=8, layer_scale_init=None)
weights = dict(type='Pretrained', prefix='backbone.')
model = dict(
    backbone=dict(
        type='SNNetv2',
        anchors=[
            dict(
                arch=dict(embed_dims=32, depth=4, num_heads=2),
                init_cfg=dict(weights, checkpoint=fast_checkpoint),
                **anchor,
            ),
            dict(
                arch=dict(embed_dims=96, depth=8, num_heads=4),
                init_cfg=dict(weights, checkpoint=slow_checkpoint),
                **anchor,
            ),
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=8),
    ),
    head=dict(
        num_classes=3,
        anchor_heads=[
            dict(
                in_channels=32,
                init_cfg=dict(
                    weights, checkpoint=fast_checkpoint, prefix='head.anchor_heads.0.'
                ),
            ),
            dict(
                in_channels=96,
                init_cfg=dict(
                    weights, checkpoint=slow_checkpoint, prefix='head.anchor_heads.0.'
                ),
            ),
        ],
    ),
)
# The slow anchor keeps the learning rate at which it was trained alone.
rates = {'anchors.1': dict(lr_mult=0.3)}
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=rates))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=60, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=60, end=600, by_epoch=False),
]
train_cfg = dict(max_iters=600, val_interval=600)
default_hooks = dict(stitch_sampling=dict(sampler=dict(step=0.01e9)))
