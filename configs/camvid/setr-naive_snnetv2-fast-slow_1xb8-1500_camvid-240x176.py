# SN-Netv2 on the CamVid pair: 32 stitches, starting from the two trained anchors and
# the slow anchor's head. One CPU core, batch 8. No figure in the paper; measured: see
# README.md.
_base_ = [
    '../_base_/models/setr-naive_snnetv2.py',
    '../_base_/datasets/camvid_240x176.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/stitched_runtime.py',
]
fast_checkpoint = 'work_dirs/setr-naive_vit-fast_1xb8-1500_camvid-240x176/iter_1500.pth'
slow_checkpoint = 'work_dirs/setr-naive_vit-slow_1xb8-1500_camvid-240x176/iter_1500.pth'
anchor = dict(type='PlainViT', img_size=(176, 240), patch_size=8, layer_scale_init=None)
weights = dict(type='Pretrained', prefix='backbone.')
model = dict(
    data_preprocessor=dict(size=(176, 240)),
    backbone=dict(
        anchors=[
            dict(
                arch=dict(embed_dims=64, depth=6, num_heads=2),
                init_cfg=dict(weights, checkpoint=fast_checkpoint),
                **anchor,
            ),
            dict(
                arch=dict(embed_dims=128, depth=12, num_heads=4),
                drop_path_rate=0.1,
                init_cfg=dict(weights, checkpoint=slow_checkpoint),
                **anchor,
            ),
        ]
    ),
    decode_head=dict(
        in_channels=128,
        channels=128,
        num_classes=11,
        init_cfg=dict(weights, checkpoint=slow_checkpoint, prefix='decode_head.'),
    ),
)
optim_wrapper = dict(optimizer=dict(lr=5e-4))
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1), stitch_sampling=dict(sampler=dict(step=0.2e9))
)
