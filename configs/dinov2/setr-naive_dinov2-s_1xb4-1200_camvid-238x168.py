# The slow anchor of the pair on CamVid, trained for twice as long. One CPU core, batch
# 4. No figure in the paper; measured: see README.md.
_base_ = ['./setr-naive_dinov2-s_1xb4-600_camvid-238x168.py']
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-6, begin=50, end=1200, by_epoch=False),
]
train_cfg = dict(max_iters=1200, val_interval=1200)
