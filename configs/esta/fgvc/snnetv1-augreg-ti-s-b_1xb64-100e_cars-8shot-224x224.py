# ESTA on Stanford Cars with 8 images of each class: 1568 training images (figure 8).
# One GPU, batch 64, 2500 iterations. Paper: curve only. Ours: not yet run.
_base_ = ['./snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
data_root = 'data/fgvc/cars_8shot'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = dict(model=dict(head=dict(num_classes=196)))
param_scheduler = [
    dict(_base_.param_scheduler[0], end=250),
    dict(_base_.param_scheduler[1], begin=250, end=2500),
]
train_cfg = dict(max_iters=2500, val_interval=250)
default_hooks = dict(stitch_sampling=dict(sampler=dict(sampler=dict(warm_up=250))))
