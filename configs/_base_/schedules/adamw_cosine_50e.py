# 50 epochs of ImageNet-1K with batch 1024: AdamW and DeiT's settings with the learning
# rate of SN-Netv1, warm-up from a thousandth of it, a cosine to a hundredth, in
# mixed precision.
optim_wrapper = dict(
    type='AmpOptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        norm_decay_mult=0,
        bias_decay_mult=0,
        flat_decay_mult=0,
        custom_keys=dict(pos_embed=dict(decay_mult=0), cls_token=dict(decay_mult=0)),
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=6260, by_epoch=False),
    dict(
        type='CosineAnnealingLR',
        eta_min_ratio=1e-2,
        begin=6260,
        end=62600,
        by_epoch=False,
    ),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=62600, val_interval=6260)
auto_scale_lr = dict(base_batch_size=1024)
