# AugReg-S alone on Stanford Cars, trained by LoRA: a star of figure 3 (ESTA). One GPU,
# batch 64, 11500 iterations. Paper: curve only. Ours: not yet run.
_base_ = ['./lora-augreg-s_1xb64-100e_cub-224x224.py']
data_root = 'data/fgvc/cars'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = dict(head=dict(num_classes=196))
param_scheduler = [
    dict(_base_.param_scheduler[0], end=1150),
    dict(_base_.param_scheduler[1], begin=1150, end=11500),
]
train_cfg = dict(max_iters=11500, val_interval=1150)
