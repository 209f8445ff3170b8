# The fast anchor of the tiny ResNet pair, trained from scratch: ResNet-18 (basic blocks
# 2-2-2-2) with widths 16 to 128. One CPU core, batch 64. No figure in the paper;
# top-1 37.4 measured.
_base_ = [
    '../../_base_/models/cls_timm_stages.py',
    '../../_base_/datasets/tinyimagenet20_64x64.py',
    '../../_base_/schedules/adamw_cosine_cls_1000.py',
    '../../_base_/cls_runtime.py',
]
model = dict(
    backbone=dict(
        model='resnet18',
        model_args=dict(channels=(16, 32, 64, 128), stem_type='deep', stem_width=8),
        img_size=64,
    ),
    head=dict(
        num_classes=20, anchor_heads=[dict(in_channels=128, pooling='mean', norm=None)]
    ),
)
