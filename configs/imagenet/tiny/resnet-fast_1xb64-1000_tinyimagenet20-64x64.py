# The fast anchor of the tiny ResNet pair, trained from scratch: ResNet-18 (basic blocks
# 2-2-2-2) with widths 16 to 128. One CPU core, batch 64. No figure in the paper;
# top-1 37.4 measured.
_base_ = [
    '../../_base_/models/cls_vit.py',
    '../../_base_/datasets/tinyimagenet20_64x64.py',
    '../../_base_/schedules/adamw_cosine.py',
    '../../_base_/cls_runtime.py',
]
model = dict(
    backbone=dict(
        _delete_=True,
        type='TimmStageAnchor',
        out='end',
        model='resnet18',
        model_args=dict(channels=(16, 32, 64, 128), stem_type='deep', stem_width=8),
        img_size=64,
    ),
    head=dict(
        num_classes=20, anchor_heads=[dict(in_channels=128, pooling='mean', norm=None)]
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=100, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=100, end=1000, by_epoch=False),
]
train_cfg = dict(max_iters=1000)
