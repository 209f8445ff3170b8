# 160k iterations of batch 16: mmsegmentation's recipe for Swin. Biases, norms and
# positions have no weight decay.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=6e-5, betas=(0.9, 0.999), weight_decay=0.01),
    constructor='AnchorLayerDecayConstructor',
    paramwise_cfg=dict(decay_rates=1.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, begin=0, end=1500, by_epoch=False),
    dict(type='PolyLR', eta_min=0, power=1.0, begin=1500, end=160000, by_epoch=False),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=160000, val_interval=16000)
auto_scale_lr = dict(base_batch_size=16)
