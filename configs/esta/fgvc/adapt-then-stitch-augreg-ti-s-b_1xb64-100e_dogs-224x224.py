# SN-Net on Stanford Dogs: the three full-augreg-* networks, stitched and trained in
# full with uniform sampling (ESTA, figure 3). One GPU, batch 64, 16900 iterations.
# Paper: curve only. Ours: not yet run.
_base_ = ['./adapt-then-stitch-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
data_root = 'data/fgvc/dogs'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = _base_.model
model.head.num_classes = 120
for part in (*model.backbone.anchors, *model.head.anchor_heads):
    file = part.init_cfg.checkpoint.replace('_cub-', '_dogs-')
    part.init_cfg.checkpoint = file.replace('8500', '16900')
del part, file
param_scheduler = [
    dict(_base_.param_scheduler[0], end=1690),
    dict(_base_.param_scheduler[1], begin=1690, end=16900),
]
train_cfg = dict(max_iters=16900, val_interval=1690)
