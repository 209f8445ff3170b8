# ESTA on Caltech101 of VTAB-1k in folders: 102 classes, 800 training images (figure 4).
# One GPU, batch 64, 1300 iterations. Paper: curve only. Ours: not yet run.
_base_ = ['../fgvc/snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
data_root = 'data/vtab/caltech101'
pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(224, 224), backend='pillow'),
    dict(type='PackInputs'),
]
train_dataloader = dict(dataset=dict(data_root=data_root, pipeline=pipeline))
val_dataloader = dict(dataset=dict(data_root=data_root, pipeline=pipeline))
test_dataloader = val_dataloader
model = dict(model=dict(head=dict(num_classes=102)))
param_scheduler = [
    dict(_base_.param_scheduler[0], end=130),
    dict(_base_.param_scheduler[1], begin=130, end=1300),
]
train_cfg = dict(max_iters=1300, val_interval=130)
default_hooks = dict(stitch_sampling=dict(sampler=dict(sampler=dict(warm_up=130))))
