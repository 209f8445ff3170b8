# The fast anchor of the depth demo, trained from scratch: 4 blocks, width 32, patch 8.
# CPU, batch 16. No figure in the paper; measured: see tasks.md.
_base_ = [
    '../_base_/models/dpt_vit.py',
    '../_base_/datasets/toy_scenes_depth_64x64.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg'], allow_failed_imports=False
)
model = dict(
    data_preprocessor=dict(size=(64, 64), test_cfg=None),
    backbone=dict(
        arch=dict(embed_dims=32, depth=4, num_heads=2),
        img_size=64,
        patch_size=8,
        layer_scale_init=None,
        out_indices=(0, 1, 2, 3),
    ),
    decode_head=dict(
        in_channels=32,
        channels=16,
        post_process_channels=(8, 12, 16, 24),
        max_depth=20,
        loss_decode=dict(warm_up_iters=20),
    ),
)
optim_wrapper = dict(optimizer=dict(lr=2e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=30, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=30, end=300, by_epoch=False),
]
train_cfg = dict(max_iters=300, val_interval=300)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
