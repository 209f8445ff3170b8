# The middle anchor of the tiny family, trained from scratch: 6 blocks, width 64,
# patch 16. One CPU core, batch 64. No figure in the paper; measured: see
# ../small_scale.md.
_base_ = ['./vit-ti_1xb64-1000_tinyimagenet20-64x64.py']
model = dict(
    backbone=dict(arch=dict(embed_dims=64, num_heads=2)),
    head=dict(anchor_heads=[dict(in_channels=64)]),
)
