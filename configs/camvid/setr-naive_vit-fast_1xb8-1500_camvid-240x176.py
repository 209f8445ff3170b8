# The fast anchor of the CamVid pair, trained from scratch: 6 blocks, width 64, patch 8.
# One CPU core, batch 8. No figure in the paper; measured: see README.md.
_base_ = [
    '../_base_/models/setr-naive_vit.py',
    '../_base_/datasets/camvid_240x176.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/default_runtime.py',
]
model = dict(
    data_preprocessor=dict(size=(176, 240)),
    backbone=dict(
        arch=dict(embed_dims=64, depth=6, num_heads=2),
        img_size=(176, 240),
        patch_size=8,
        layer_scale_init=None,
    ),
    decode_head=dict(in_channels=64, channels=128, num_classes=11),
)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
