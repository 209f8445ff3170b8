# 600 iterations of the schedule of small ViTs, for stitched classifiers whose anchors
# are trained.
_base_ = ['./adamw_cosine.py']
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=30, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=30, end=600, by_epoch=False),
]
train_cfg = dict(max_iters=600, val_interval=600)
