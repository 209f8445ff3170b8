# The tiny ViT stitched to itself by bottlenecks, both frozen: 3 gaps from the first
# stage, drawn uniformly, as in figure 9. One CPU core, batch 64. No figure in the
# paper; ours: measured, see ../small_scale.md.
_base_ = ['./bridge-resnet-resnet-bottleneck_1xb64-300_tinyimagenet20-64x64.py']
model = dict(
    backbone=dict(
        anchors=[_base_.vit.anchor, _base_.vit.anchor],
        stages=[(0, 0), (0, 1), (0, 2)],
    ),
    head=dict(anchor_heads=[_base_.vit.end, _base_.vit.end]),
)
