# 50 epochs of ImageNet-1K with batch 256: LAMB, which clips gradients internally, a
# tenth of the learning rate of DeiT3's finetuning, 5 epochs of warm-up from 1e-7. Mixed
# precision and epsilon as in the authors' trainings.
optim_wrapper = dict(
    type='AmpOptimWrapper',
    optimizer=dict(
        type='Lamb', lr=3e-5, eps=1e-8, weight_decay=0.02, max_grad_norm=1.0
    ),
    paramwise_cfg=dict(
        norm_decay_mult=0,
        bias_decay_mult=0,
        flat_decay_mult=0,
        custom_keys=dict(pos_embed=dict(decay_mult=0), cls_token=dict(decay_mult=0)),
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1 / 300, begin=0, end=25025, by_epoch=False),
    dict(
        type='CosineAnnealingLR', eta_min=1e-5, begin=25025, end=250250, by_epoch=False
    ),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=250250, val_interval=25025)
auto_scale_lr = dict(base_batch_size=256)
