# The slow anchor of the depth demo, trained from scratch: 8 blocks, width 96, patch 8.
# CPU, batch 16. No figure in the paper; measured: see tasks.md.
_base_ = ['./dpt_vit-fast_1xb16-300_toy-scenes-64x64.py']
model = dict(
    backbone=dict(
        arch=dict(embed_dims=96, depth=8, num_heads=4), out_indices=(1, 3, 5, 7)
    ),
    decode_head=dict(in_channels=96),
)
optim_wrapper = dict(optimizer=dict(lr=1e-3))
