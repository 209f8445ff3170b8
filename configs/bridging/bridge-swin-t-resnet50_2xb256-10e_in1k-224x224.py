# Swin-T stitched to ResNet-50 across a large gap, by bottlenecks, on ImageNet-1K
# ("Bridging Large Gaps"). 2 GPUs, batch 512. Paper: curves only (figures 6 and 9 to
# 15). Ours: not yet run.
_base_ = ['../_base_/bridged_in1k.py', '../_base_/bridged_cls_runtime.py']
model = dict(
    backbone=dict(anchors=[_base_.swin_t.anchor, _base_.resnet50.anchor]),
    head=dict(anchor_heads=[_base_.swin_t.end, _base_.resnet50.end]),
)
