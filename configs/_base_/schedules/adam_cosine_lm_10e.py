# Ten epochs of 50002 rows in batches of 4, of which 32 are accumulated. The learning
# rate, its warm-up and its cosine are ours.
optim_wrapper = dict(
    type='OptimWrapper', accumulative_counts=32, optimizer=dict(type='Adam', lr=3e-4)
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, begin=0, end=3200, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=0, begin=3200, end=125010, by_epoch=False),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=125010, val_interval=12512)
auto_scale_lr = dict(base_batch_size=128)
