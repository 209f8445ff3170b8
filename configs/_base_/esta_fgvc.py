# ESTA on a fine-grained data set at 224x224: AugReg-Ti, S and B, 71 stitches, one GPU,
# batch 64. Data, classes, iterations and the sampler are set by the configs that
# inherit this.
_base_ = [
    './models/esta_augreg-ti-s-b.py',
    './datasets/fgvc_224x224.py',
    './schedules/adamw_cosine_esta.py',
]
# 1e-3 of the paper's grid of 1e-4 to 2e-3, times batch / 256.
optim_wrapper = dict(optimizer=dict(lr=2.5e-4))
