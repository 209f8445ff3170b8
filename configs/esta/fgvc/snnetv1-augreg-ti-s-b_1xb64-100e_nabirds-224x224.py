# ESTA on NABirds: 555 classes, 21536 training images. AugReg-Ti, S and B,
# 71 stitches (section 5.1). One GPU, batch 64, 33700 iterations.
# Paper: figure 3 shows a curve only. Ours: not yet run.
_base_ = ['./snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
data_root = 'data/fgvc/nabirds'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = dict(model=dict(head=dict(num_classes=555)))
param_scheduler = [
    dict(_base_.param_scheduler[0], end=3370),
    dict(_base_.param_scheduler[1], begin=3370, end=33700),
]
train_cfg = dict(max_iters=33700, val_interval=3370)
default_hooks = dict(stitch_sampling=dict(sampler=dict(sampler=dict(warm_up=3370))))
