# The tiny ResNet-50 stitched to the tiny Swin by 3x3 convolutions and ReLU. One CPU
# core, batch 64. No figure in the paper; ours: measured, see ../small_scale.md.
_base_ = ['./bridge-resnet-swin-bottleneck_1xb64-300_tinyimagenet20-64x64.py']
model = dict(backbone=dict(stitching_layer=dict(type='Conv3x3Adapter')))
