# 1000 iterations of the schedule of small ViTs, for classifiers.
_base_ = ['./adamw_cosine.py']
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=100, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=100, end=1000, by_epoch=False),
]
train_cfg = dict(max_iters=1000)
