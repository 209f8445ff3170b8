# 30 epochs of ImageNet-1K with batch 1024: timm's script for ResNets, SGD with Nesterov
# momentum, 5 epochs of warm-up and a cosine, with the learning rate of SN-Netv1,
# a tenth of it for the anchors. Mixed precision, as in the authors' trainings.
optim_wrapper = dict(
    type='AmpOptimWrapper',
    optimizer=dict(type='SGD', lr=0.05, momentum=0.9, nesterov=True, weight_decay=2e-5),
    constructor='AnchorLayerDecayConstructor',
    paramwise_cfg=dict(
        decay_rates=1.0, lr_mults={'backbone.anchors': 0.1, 'head.anchor_heads': 0.1}
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=2e-4, begin=0, end=6260, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=0, begin=6260, end=37560, by_epoch=False),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=37560, val_interval=6260)
auto_scale_lr = dict(base_batch_size=1024)
