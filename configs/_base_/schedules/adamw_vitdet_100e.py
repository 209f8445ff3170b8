# ViTDet's schedule in detectron2, 100 epochs of COCO, for batches of 8 images: eight
# times its 184375 iterations for batches of 64, with its drops after 88.9 and 96.3 %.
# Learning rate (1e-4), betas, weight decay and the 250 iterations of warm-up are
# detectron2's. SN-Netv2 states that it kept them, and no other rate for batches of 8.
# To our knowledge detectron2 clips no gradients here, and also decays biases and
# relative positions, which AnchorLayerDecayConstructor exempts. Models set decay_rates.
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
auto_scale_lr = dict(base_batch_size=8)
