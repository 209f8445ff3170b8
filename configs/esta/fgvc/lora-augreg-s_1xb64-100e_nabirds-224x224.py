# AugReg-S alone on NABirds, trained by LoRA: a star of figure 3 (ESTA). One GPU,
# batch 64, 33700 iterations. Paper: curve only. Ours: not yet run.
_base_ = ['./lora-augreg-s_1xb64-100e_cub-224x224.py']
data_root = 'data/fgvc/nabirds'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = dict(head=dict(num_classes=555))
param_scheduler = [
    dict(_base_.param_scheduler[0], end=3370),
    dict(_base_.param_scheduler[1], begin=3370, end=33700),
]
train_cfg = dict(max_iters=33700, val_interval=3370)
