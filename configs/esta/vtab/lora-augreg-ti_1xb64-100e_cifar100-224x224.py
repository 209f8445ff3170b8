# AugReg-Ti alone on CIFAR-100, trained by LoRA: a star of figure 4 (ESTA). One GPU,
# batch 64, 78200 iterations. Paper: curve only. Ours: not yet run.
_base_ = ['../fgvc/lora-augreg-ti_1xb64-100e_cub-224x224.py']
data_root = 'data/cifar100'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = dict(head=dict(num_classes=100))
param_scheduler = [
    dict(_base_.param_scheduler[0], end=7820),
    dict(_base_.param_scheduler[1], begin=7820, end=78200),
]
train_cfg = dict(max_iters=78200, val_interval=7820)
