# The slow anchor of the detection demo, trained from scratch: 8 blocks, width 96,
# patch 8. CPU, batch 8. No figure in the paper; measured: see tasks.md.
_base_ = ['./mask-rcnn_vit-fast_1xb8-300_toy-scenes-64x64.py']
model = dict(
    backbone=dict(arch=dict(embed_dims=96, depth=8, num_heads=4)),
    neck=dict(in_channels=96),
)
optim_wrapper = dict(optimizer=dict(lr=1e-3))
