# AugReg-Ti alone on Caltech101 of VTAB-1k, trained by LoRA: a star of figure 4 (ESTA).
# One GPU, batch 64, 1300 iterations. Paper: curve only. Ours: not yet run.
_base_ = ['../fgvc/lora-augreg-ti_1xb64-100e_cub-224x224.py']
data_root = 'data/vtab/caltech101'
pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(224, 224), backend='pillow'),
    dict(type='PackInputs'),
]
train_dataloader = dict(dataset=dict(data_root=data_root, pipeline=pipeline))
val_dataloader = dict(dataset=dict(data_root=data_root, pipeline=pipeline))
test_dataloader = val_dataloader
model = dict(head=dict(num_classes=102))
param_scheduler = [
    dict(_base_.param_scheduler[0], end=130),
    dict(_base_.param_scheduler[1], begin=130, end=1300),
]
train_cfg = dict(max_iters=1300, val_interval=130)
