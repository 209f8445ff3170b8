# SN-Netv2 on the pair of the depth demo: 14 stitches, starting from the two trained
# anchors and the slow anchor's head. CPU, batch 16. No figure in the paper; measured:
# see tasks.md.
_base_ = [
    '../_base_/models/dpt_snnetv2.py',
    '../_base_/datasets/toy_scenes_depth_64x64.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/stitched_runtime.py',
]
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg'], allow_failed_imports=False
)
fast_checkpoint = 'work_dirs/dpt_vit-fast_1xb16-300_toy-scenes-64x64/iter_300.pth'
slow_checkpoint = 'work_dirs/dpt_vit-slow_1xb16-300_toy-scenes-64x64/iter_300.pth'
anchor = dict(type='PlainViT', img_size=64, patch_size=8, layer_scale_init=None)
weights = dict(type='Pretrained', prefix='backbone.')
model = dict(
    data_preprocessor=dict(size=(64, 64), test_cfg=None),
    backbone=dict(
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
        stitching_layer=dict(rank=8),
        out_indices=(1, 3, 5, 7),
    ),
    decode_head=dict(
        in_channels=96,
        channels=16,
        post_process_channels=(8, 12, 16, 24),
        max_depth=20,
        # The trained head has learned the scale already.
        loss_decode=dict(warm_up_iters=0),
        init_cfg=dict(weights, checkpoint=slow_checkpoint, prefix='decode_head.'),
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
