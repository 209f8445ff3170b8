# The one-cycle schedule of DPT on NYUv2: AdamW, one learning rate for all parameters,
# no weight decay of positions and tokens, and cycled momentum, as in the authors'
# settings. 24 epochs of the 24231 training images of the Eigen split, batch 16; for
# another number of images use tools/train.py --iters.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=2e-5, betas=(0.9, 0.999), weight_decay=0.01),
    paramwise_cfg=dict(
        custom_keys=dict(pos_embed=dict(decay_mult=0), cls_token=dict(decay_mult=0))
    ),
    clip_grad=dict(max_norm=35, norm_type=2),
)
param_scheduler = [
    dict(
        type='GroupOneCycleLR',
        div_factor=25,
        final_div_factor=100,
        begin=0,
        end=36360,
        by_epoch=False,
    ),
    dict(type='OneCycleMomentum', begin=0, end=36360, by_epoch=False),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=36360, val_interval=1515)
auto_scale_lr = dict(base_batch_size=16)
