# The slowest anchor of the tiny family, trained from scratch: 6 blocks, width 128,
# patch 16. One CPU core, batch 64. No figure in the paper; measured: see
# ../small_scale.md.
_base_ = ['./vit-ti_1xb64-1000_tinyimagenet20-64x64.py']
model = dict(
    backbone=dict(arch=dict(embed_dims=128, num_heads=4), drop_path_rate=0.1),
    head=dict(anchor_heads=[dict(in_channels=128)]),
)
