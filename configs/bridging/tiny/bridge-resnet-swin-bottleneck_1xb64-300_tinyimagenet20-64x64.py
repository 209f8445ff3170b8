# The tiny ResNet-50 stitched to the tiny Swin by bottlenecks, both frozen: 3 gaps from
# the first stage, drawn uniformly, as in figure 4. One CPU core, batch 64. No figure in
# the paper; ours: measured, see ../small_scale.md.
_base_ = [
    '../../_base_/models/bridged_tiny.py',
    '../../_base_/datasets/tinyimagenet20_64x64.py',
    '../../_base_/schedules/adamw_cosine_10e_bridge.py',
    '../../_base_/bridged_cls_runtime.py',
]
model = dict(
    backbone=dict(
        anchors=[_base_.resnet.anchor, _base_.swin.anchor],
        stages=[(0, 0), (0, 1), (0, 2)],
    ),
    head=dict(anchor_heads=[_base_.resnet.end, _base_.swin.end]),
)
param_scheduler = [
    dict(type='CosineAnnealingLR', eta_min=0, begin=0, end=300, by_epoch=False)
]
train_cfg = dict(max_iters=300, val_interval=300)
