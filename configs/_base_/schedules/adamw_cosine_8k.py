# 8000 iterations from ImageNet weights, on CamVid at full resolution.
_base_ = ['./adamw_cosine.py']
optim_wrapper = dict(optimizer=dict(lr=6e-5))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=500, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=0, begin=500, end=8000, by_epoch=False),
]
train_cfg = dict(max_iters=8000, val_interval=2000)
