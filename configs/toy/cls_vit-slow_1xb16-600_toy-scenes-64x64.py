# The slow anchor of the classification demo, 8 blocks of width 96, on generated scenes.
# CPU, batch 16. No figure in the paper; measured: see tasks.md.
_base_ = ['./cls_vit-fast_1xb16-600_toy-scenes-64x64.py']
model = dict(
    backbone=dict(arch=dict(embed_dims=96, depth=8, num_heads=4)),
    head=dict(anchor_heads=[dict(in_channels=96)]),
)
optim_wrapper = dict(optimizer=dict(lr=3e-4))
