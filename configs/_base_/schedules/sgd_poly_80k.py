# The schedule that the authors' released SETR configs effectively ran, 80k iterations.
_base_ = ['./sgd_poly_160k.py']
param_scheduler = [
    dict(type='PolyLR', eta_min=1e-4, power=0.9, begin=0, end=80000, by_epoch=False)
]
train_cfg = dict(max_iters=80000, val_interval=8000)
