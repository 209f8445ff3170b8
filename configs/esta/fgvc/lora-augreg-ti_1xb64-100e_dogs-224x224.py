# AugReg-Ti alone on Stanford Dogs, trained by LoRA: a star of figure 3 (ESTA). One GPU,
# batch 64, 16900 iterations. Paper: curve only. Ours: not yet run.
_base_ = ['./lora-augreg-ti_1xb64-100e_cub-224x224.py']
data_root = 'data/fgvc/dogs'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = dict(head=dict(num_classes=120))
param_scheduler = [
    dict(_base_.param_scheduler[0], end=1690),
    dict(_base_.param_scheduler[1], begin=1690, end=16900),
]
train_cfg = dict(max_iters=16900, val_interval=1690)
