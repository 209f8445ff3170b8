# The schedule of ESTA (appendix A): AdamW with a weight decay of 1e-4 on everything,
# ten of a hundred epochs of warm-up, a cosine. Learning rate and iterations are set by
# the configs that inherit it.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=1e-4),
)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=None, val_interval=None)
