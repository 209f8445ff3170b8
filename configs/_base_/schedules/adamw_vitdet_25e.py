# A quarter of ViTDet's schedule, for batches of 8 images.
_base_ = ['./adamw_vitdet_100e.py']
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=250, by_epoch=False),
    dict(type='MultiStepLR', milestones=[327778, 355092], gamma=0.1, by_epoch=False),
]
train_cfg = dict(max_iters=368750, val_interval=14750)
