# The slow anchor of the HoloLens pair, trained from scratch: 12 blocks, width 192,
# patch 16. One CPU core, batch 8. No figure in the paper; measured: see ../README.md.
_base_ = ['./dpt_vit-fast_1xb8-400_hololens-240x160.py']
model = dict(
    backbone=dict(
        arch=dict(embed_dims=192, depth=12, num_heads=6),
        drop_path_rate=0.1,
        out_indices=(2, 5, 8, 11),
    ),
    decode_head=dict(in_channels=192),
)
