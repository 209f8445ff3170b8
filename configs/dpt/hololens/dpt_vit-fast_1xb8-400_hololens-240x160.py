# The fast anchor of the HoloLens pair, trained from scratch: 6 blocks, width 96,
# patch 16. One CPU core, batch 8. No figure in the paper; measured: see ../README.md.
_base_ = [
    '../../_base_/models/dpt_vit.py',
    '../../_base_/datasets/hololens_240x160.py',
    '../../_base_/schedules/adamw_cosine.py',
    '../../_base_/default_runtime.py',
]
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg'], allow_failed_imports=False
)
model = dict(
    data_preprocessor=dict(size=(128, 192)),
    backbone=dict(
        arch=dict(embed_dims=96, depth=6, num_heads=3),
        img_size=(128, 192),
        layer_scale_init=None,
        out_indices=(0, 2, 4, 5),
    ),
    decode_head=dict(
        in_channels=96,
        channels=32,
        post_process_channels=(24, 32, 48, 64),
        loss_decode=dict(warm_up_iters=20),
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=40, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=40, end=400, by_epoch=False),
]
train_cfg = dict(max_iters=400, val_interval=400)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
