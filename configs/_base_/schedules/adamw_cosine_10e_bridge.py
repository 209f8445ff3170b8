# 10 epochs of ImageNet-1K with batch 512 for adapters ("Bridging Large Gaps",
# section 2): AdamW and a cosine to 0. The paper mentions neither warm-up nor clipping.
optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='AdamW', lr=2e-3, weight_decay=0.05)
)
param_scheduler = [
    dict(type='CosineAnnealingLR', eta_min=0, begin=0, end=25030, by_epoch=False)
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=25030, val_interval=2503)
