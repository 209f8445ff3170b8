# Bridges between two networks of configs/imagenet/tiny on 20 classes of Tiny ImageNet,
# 300 iterations.
_base_ = [
    './models/bridged_tiny.py',
    './datasets/tinyimagenet20_64x64.py',
    './schedules/adamw_cosine_10e_bridge.py',
    './bridged_cls_runtime.py',
]
param_scheduler = [
    dict(type='CosineAnnealingLR', eta_min=0, begin=0, end=300, by_epoch=False)
]
train_cfg = dict(max_iters=300, val_interval=300)
