# ESTA on Stanford Cars with 1 image of each class: 196 training images (figure 8).
# One GPU, batch 64, 400 iterations. Paper: curve only. Ours: not yet run.
_base_ = ['./snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
data_root = 'data/fgvc/cars_1shot'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = dict(model=dict(head=dict(num_classes=196)))
param_scheduler = [
    dict(_base_.param_scheduler[0], end=40),
    dict(_base_.param_scheduler[1], begin=40, end=400),
]
train_cfg = dict(max_iters=400, val_interval=40)
default_hooks = dict(stitch_sampling=dict(sampler=dict(sampler=dict(warm_up=40))))
