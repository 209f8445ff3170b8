# SN-Netv2 on the HoloLens pair: 32 stitches, starting from the two trained anchors and
# the slow anchor's head. One CPU core, batch 8. No figure in the paper; measured: see
# ../README.md.
_base_ = [
    '../../_base_/models/dpt_snnetv2.py',
    '../../_base_/datasets/hololens_240x160.py',
    '../../_base_/schedules/adamw_cosine.py',
    '../../_base_/stitched_runtime.py',
]
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg'], allow_failed_imports=False
)
fast_checkpoint = 'work_dirs/dpt_vit-fast_1xb8-400_hololens-240x160/iter_400.pth'
slow_checkpoint = 'work_dirs/dpt_vit-slow_1xb8-400_hololens-240x160/iter_400.pth'
anchor = dict(type='PlainViT', img_size=(128, 192), layer_scale_init=None)
weights = dict(type='Pretrained', prefix='backbone.')
model = dict(
    data_preprocessor=dict(size=(128, 192)),
    backbone=dict(
        anchors=[
            dict(
                arch=dict(embed_dims=96, depth=6, num_heads=3),
                init_cfg=dict(weights, checkpoint=fast_checkpoint),
                **anchor,
            ),
            dict(
                arch=dict(embed_dims=192, depth=12, num_heads=6),
                drop_path_rate=0.1,
                init_cfg=dict(weights, checkpoint=slow_checkpoint),
                **anchor,
            ),
        ],
        stitching_layer=dict(rank=16),
        out_indices=(2, 5, 8, 11),
    ),
    decode_head=dict(
        in_channels=192,
        channels=32,
        post_process_channels=(24, 32, 48, 64),
        # The trained head has learned the scale already.
        loss_decode=dict(warm_up_iters=0),
        init_cfg=dict(weights, checkpoint=slow_checkpoint, prefix='decode_head.'),
    ),
)
optim_wrapper = dict(optimizer=dict(lr=5e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=20, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=20, end=200, by_epoch=False),
]
train_cfg = dict(max_iters=200, val_interval=200)
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1), stitch_sampling=dict(sampler=dict(step=0.03e9))
)
test_cfg = dict(input_size=(160, 240))
