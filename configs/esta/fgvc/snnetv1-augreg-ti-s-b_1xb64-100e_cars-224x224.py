# ESTA on Stanford Cars: 196 classes, 7329 training images. AugReg-Ti, S and B,
# 71 stitches (section 5.1). One GPU, batch 64, 11500 iterations.
# Paper: figure 3 shows a curve only. Ours: not yet run.
_base_ = ['./snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
data_root = 'data/fgvc/cars'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = dict(model=dict(head=dict(num_classes=196)))
param_scheduler = [
    dict(_base_.param_scheduler[0], end=1150),
    dict(_base_.param_scheduler[1], begin=1150, end=11500),
]
train_cfg = dict(max_iters=11500, val_interval=1150)
default_hooks = dict(stitch_sampling=dict(sampler=dict(sampler=dict(warm_up=1150))))
