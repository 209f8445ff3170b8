# 600 iterations, 50 of warm-up, in bfloat16 on a CPU.
optim_wrapper = dict(
    type='BF16OptimWrapper',
    optimizer=dict(type='AdamW', lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1),
    paramwise_cfg=dict(norm_decay_mult=0.0),
    clip_grad=dict(max_norm=1.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.02, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=2e-4, begin=50, end=600, by_epoch=False),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=600, val_interval=600)
