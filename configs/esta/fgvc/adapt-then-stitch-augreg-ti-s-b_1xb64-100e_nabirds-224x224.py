# SN-Net on NABirds: the three full-augreg-* networks, stitched and trained in full with
# uniform sampling (ESTA, figure 3). One GPU, batch 64, 33700 iterations. Paper: curve
# only. Ours: not yet run.
_base_ = ['./adapt-then-stitch-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
data_root = 'data/fgvc/nabirds'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = _base_.model
model.head.num_classes = 555
for part in (*model.backbone.anchors, *model.head.anchor_heads):
    file = part.init_cfg.checkpoint.replace('_cub-', '_nabirds-')
    part.init_cfg.checkpoint = file.replace('8500', '33700')
del part, file
param_scheduler = [
    dict(_base_.param_scheduler[0], end=3370),
    dict(_base_.param_scheduler[1], begin=3370, end=33700),
]
train_cfg = dict(max_iters=33700, val_interval=3370)
