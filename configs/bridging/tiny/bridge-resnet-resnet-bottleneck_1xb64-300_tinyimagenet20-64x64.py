# The tiny ResNet-50 stitched to itself by bottlenecks, both frozen: 4 gaps from the
# first stage, drawn uniformly, as in figure 3. One CPU core, batch 64. No figure in the
# paper; ours: measured, see ../small_scale.md.
_base_ = ['../../_base_/bridged_tiny.py', '../../_base_/bridged_cls_runtime.py']
model = dict(
    backbone=dict(
        anchors=[_base_.resnet.anchor, _base_.resnet.anchor],
        stages=[(0, 0), (0, 1), (0, 2), (0, 3)],
    ),
    head=dict(anchor_heads=[_base_.resnet.end, _base_.resnet.end]),
)
