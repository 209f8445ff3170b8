# ResNet-50 stitched to itself across a large gap, by bottlenecks, on ImageNet-1K
# ("Bridging Large Gaps"). 2 GPUs, batch 512. Paper: 67.4 top-1 at 1.67 GFLOPs, and 78.3
# at 3.58 from the first stage to the second (table 1). Ours: not yet run.
_base_ = ['../_base_/bridged_in1k.py', '../_base_/bridged_cls_runtime.py']
model = dict(
    backbone=dict(anchors=[_base_.resnet50.anchor, _base_.resnet50.anchor]),
    head=dict(anchor_heads=[_base_.resnet50.end, _base_.resnet50.end]),
)
