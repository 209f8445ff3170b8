# ESTA on Stanford Cars with 16 images of each class: 3136 training images (figure 8).
# One GPU, batch 64, 4900 iterations. Paper: curve only. Ours: not yet run.
_base_ = ['./snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
data_root = 'data/fgvc/cars_16shot'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = dict(model=dict(head=dict(num_classes=196)))
param_scheduler = [
    dict(_base_.param_scheduler[0], end=490),
    dict(_base_.param_scheduler[1], begin=490, end=4900),
]
train_cfg = dict(max_iters=4900, val_interval=490)
default_hooks = dict(stitch_sampling=dict(sampler=dict(sampler=dict(warm_up=490))))
