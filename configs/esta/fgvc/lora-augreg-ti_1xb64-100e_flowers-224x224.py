# AugReg-Ti alone on Oxford Flowers, trained by LoRA: a star of figure 3 (ESTA). One
# GPU, batch 64, 1600 iterations. Paper: curve only. Ours: not yet run.
_base_ = ['./lora-augreg-ti_1xb64-100e_cub-224x224.py']
data_root = 'data/fgvc/flowers'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = dict(head=dict(num_classes=102))
param_scheduler = [
    dict(_base_.param_scheduler[0], end=160),
    dict(_base_.param_scheduler[1], begin=160, end=1600),
]
train_cfg = dict(max_iters=1600, val_interval=160)
