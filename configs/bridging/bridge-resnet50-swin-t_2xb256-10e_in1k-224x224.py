# ResNet-50 stitched to Swin-T across a large gap, by bottlenecks, on ImageNet-1K
# ("Bridging Large Gaps"). 2 GPUs, batch 512. Paper: about 69 top-1, 12 points below
# Swin-T, at 35 % of its FLOPs, and 78.2, 3.3 points below it, to the third stage
# (figure 4). Ours: not yet run.
_base_ = ['../_base_/bridged_in1k.py', '../_base_/bridged_cls_runtime.py']
model = dict(
    backbone=dict(anchors=[_base_.resnet50.anchor, _base_.swin_t.anchor]),
    head=dict(anchor_heads=[_base_.resnet50.end, _base_.swin_t.end]),
)
