# The slow anchor of the nuclei pair, trained from scratch: 12 blocks, width 128,
# patch 8, windows of 8, global blocks 5 and 11. One CPU core, batch 2. No figure in the
# paper; measured: see ../small_scale.md.
_base_ = ['./mask-rcnn_vit-fast_1xb2-700_nuclei-256x256.py']
model = dict(
    backbone=dict(
        arch=dict(embed_dims=128, depth=12, num_heads=4),
        global_blocks=(5, 11),
        drop_path_rate=0.1,
    ),
    neck=dict(in_channels=128),
)
