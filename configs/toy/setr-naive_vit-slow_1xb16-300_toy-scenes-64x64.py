# The slow anchor of the demo pair, trained from scratch: 8 blocks, width 48, patch 8.
# CPU, batch 16. No figure in the paper; measured: see README.md.
_base_ = ['./setr-naive_vit-fast_1xb16-300_toy-scenes-64x64.py']
model = dict(
    backbone=dict(arch=dict(embed_dims=48, depth=8, num_heads=4)),
    decode_head=dict(in_channels=48),
)
optim_wrapper = dict(optimizer=dict(lr=2e-3))
