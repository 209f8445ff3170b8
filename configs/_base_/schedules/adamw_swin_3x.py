# 36 epochs of COCO with batch 16, 7330 iterations each: mmdetection's recipe for Swin.
# Biases, norms and positions have no weight decay.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    constructor='AnchorLayerDecayConstructor',
    paramwise_cfg=dict(decay_rates=1.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=1000, by_epoch=False),
    dict(
        type='MultiStepLR',
        begin=0,
        end=263880,
        milestones=[197910, 241890],
        gamma=0.1,
        by_epoch=False,
    ),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=263880, val_interval=21990)
auto_scale_lr = dict(base_batch_size=16)
