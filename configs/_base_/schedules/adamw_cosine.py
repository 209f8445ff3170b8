# AdamW with linear warm-up and cosine decay, for small ViTs trained from scratch.
# tools/train.py --iters scales both to another number of iterations.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        norm_decay_mult=0,
        bias_decay_mult=0,
        custom_keys=dict(pos_embed=dict(decay_mult=0), cls_token=dict(decay_mult=0)),
    ),
    clip_grad=dict(max_norm=1.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=100, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=100, end=1500, by_epoch=False),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=1500, val_interval=500)
