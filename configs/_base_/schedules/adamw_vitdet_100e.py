# ViTDet's schedule in detectron2, 100 epochs of COCO, for batches of 8 images: eight
# times the 184375 iterations of its batches of 64, and the drops where it has them,
# after 88.9 and 96.3 %. Rate (1e-4), betas, weight decay and the 250 iterations of
# warm-up are its own; SN-Netv2 says that it kept them, and no rate of its own for a
# batch of 8. To our knowledge detectron2 clips no gradients there and decays biases and
# relative positions too, which AnchorLayerDecayConstructor does not. Models set
# decay_rates.
optim_wrapper = dict(
    type='AmpOptimWrapper',
    constructor='AnchorLayerDecayConstructor',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=250, by_epoch=False),
    dict(type='MultiStepLR', milestones=[1311112, 1420368], gamma=0.1, by_epoch=False),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=1475000, val_interval=59000)
