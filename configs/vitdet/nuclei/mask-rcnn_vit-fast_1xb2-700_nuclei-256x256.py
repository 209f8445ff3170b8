# The fast anchor of the nuclei pair, trained from scratch: 6 blocks, width 64, patch 8,
# windows of 8, global blocks 2 and 5. One CPU core, batch 2. No figure in the paper;
# measured: see ../small_scale.md.
_base_ = [
    '../../_base_/models/mask-rcnn_vit_nuclei.py',
    '../../_base_/datasets/nuclei_256x256.py',
    '../../_base_/schedules/adamw_cosine.py',
    '../../_base_/detection_runtime.py',
]
model = dict(
    backbone=dict(
        arch=dict(embed_dims=64, depth=6, num_heads=2),
        img_size=256,
        patch_size=8,
        window_size=8,
        global_blocks=(2, 5),
        layer_scale_init=None,
    ),
    neck=dict(in_channels=64),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=100, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=100, end=700, by_epoch=False),
]
train_cfg = dict(max_iters=700, val_interval=700)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1, interval=200))
