# AdamW with layer decay for pretrained ViTs, 80k iterations of batches of 16: linear
# warm-up, then linear decay to 0. The settings are ours.
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='AnchorLayerDecayConstructor',
    paramwise_cfg=dict(decay_rates=0.9),
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=1500, by_epoch=False),
    dict(type='PolyLR', eta_min=0.0, power=1.0, begin=1500, end=80000, by_epoch=False),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=80000, val_interval=8000)
auto_scale_lr = dict(base_batch_size=16)
