# ESTA on a fine-grained data set at 224x224: AugReg-Ti, S and B, 71 stitches, one GPU,
# batch 64. Data, classes, iterations and the sampler are set by the configs that
# inherit this. The optimizer is that of appendix A: AdamW with a weight decay of 1e-4
# on everything, ten of a hundred epochs of warm-up, a cosine.
_base_ = ['./models/esta_augreg-ti-s-b.py', './datasets/fgvc_224x224.py']
optim_wrapper = dict(
    type='OptimWrapper',
    # 1e-3 of the paper's grid of 1e-4 to 2e-3, times batch / 256.
    optimizer=dict(type='AdamW', lr=2.5e-4, betas=(0.9, 0.999), weight_decay=1e-4),
)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=None, val_interval=None)
