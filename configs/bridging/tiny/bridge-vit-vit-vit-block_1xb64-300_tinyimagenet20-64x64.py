# The tiny ViT stitched to itself by ViT blocks. One CPU core, batch 64. No figure in
# the paper; ours: measured, see ../small_scale.md.
_base_ = ['./bridge-vit-vit-bottleneck_1xb64-300_tinyimagenet20-64x64.py']
model = dict(backbone=dict(stitching_layer=dict(type='ViTBlockAdapter', head_dim=32)))
