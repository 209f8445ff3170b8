# ESTA on Oxford Flowers: 102 classes, 1020 training images.
# AugReg-Ti, S and B, 71 stitches (section 5.1). One GPU, batch 64, 1600 iterations.
# Paper: not reported separately. Ours: not yet run.
_base_ = ['./snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
data_root = 'data/fgvc/flowers'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = dict(model=dict(head=dict(num_classes=102)))
param_scheduler = [
    dict(_base_.param_scheduler[0], end=160),
    dict(_base_.param_scheduler[1], begin=160, end=1600),
]
train_cfg = dict(max_iters=1600, val_interval=160)
default_hooks = dict(stitch_sampling=dict(sampler=dict(sampler=dict(warm_up=160))))
