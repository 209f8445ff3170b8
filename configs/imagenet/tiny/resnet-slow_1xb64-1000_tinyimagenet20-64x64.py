# The slow anchor of the tiny ResNet pair, trained from scratch: ResNet-50 (bottlenecks
# 3-4-6-3) with widths 64 to 512. One CPU core, batch 64. No figure in the paper;
# top-1 38.8 measured.
_base_ = ['./resnet-fast_1xb64-1000_tinyimagenet20-64x64.py']
model = dict(
    backbone=dict(model='resnet50', drop_path_rate=0.1),
    head=dict(anchor_heads=[dict(in_channels=512, pooling='mean', norm=None)]),
)
