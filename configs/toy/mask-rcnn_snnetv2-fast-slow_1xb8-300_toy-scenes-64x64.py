# SN-Netv2 on the pair of the detection demo: 14 stitches, starting from the two trained
# anchors and the slow anchor's pyramid and heads. CPU, batch 8. No figure in the paper;
# box AP 3.8 to 4.2 measured.
_base_ = [
    '../_base_/models/mask-rcnn_vit_toy.py',
    '../_base_/datasets/toy_objects_64x64.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/stitched_detection_runtime.py',
]
fast_checkpoint = 'work_dirs/mask-rcnn_vit-fast_1xb8-300_toy-scenes-64x64/iter_300.pth'
slow_checkpoint = 'work_dirs/mask-rcnn_vit-slow_1xb8-300_toy-scenes-64x64/iter_300.pth'
anchor = dict(
    type='PlainViT',
    img_size=64,
    patch_size=8,
    cls_token=False,
    decomposed_rel_pos=True,
    layer_scale_init=None,
)
weights = dict(type='Pretrained', prefix='backbone.')
model = dict(
    backbone=dict(
        _delete_=True,
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
    neck=dict(
        in_channels=96,
        init_cfg=dict(weights, checkpoint=slow_checkpoint, prefix='neck.'),
    ),
    rpn_head=dict(
        init_cfg=dict(weights, checkpoint=slow_checkpoint, prefix='rpn_head.'),
    ),
    roi_head=dict(
        init_cfg=dict(weights, checkpoint=slow_checkpoint, prefix='roi_head.'),
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=30, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=30, end=300, by_epoch=False),
]
train_cfg = dict(max_iters=300, val_interval=300)
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1), stitch_sampling=dict(sampler=dict(step=0.01e9))
)
