# 600 iterations: the schedule of the configs of own data, of which
# tools/new_project.py writes the length. The head learns from scratch; at its rate a
# pretrained backbone would forget.
_base_ = ['../schedules/adamw_cosine.py']
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-6, begin=50, end=600, by_epoch=False),
]
train_cfg = dict(max_iters=600, val_interval=150)
