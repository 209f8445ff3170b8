# SN-Net on Caltech101 of VTAB-1k: the three full-augreg-* networks, stitched and
# trained in full with uniform sampling (ESTA, figure 4). One GPU, batch 64, 1300
# iterations.
# Paper: curve only. Ours: not yet run.
_base_ = ['../fgvc/adapt-then-stitch-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
data_root = 'data/vtab/caltech101'
pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(224, 224), backend='pillow'),
    dict(type='PackInputs'),
]
train_dataloader = dict(dataset=dict(data_root=data_root, pipeline=pipeline))
val_dataloader = dict(dataset=dict(data_root=data_root, pipeline=pipeline))
test_dataloader = val_dataloader
model = _base_.model
model.head.num_classes = 102
for part in (*model.backbone.anchors, *model.head.anchor_heads):
    file = part.init_cfg.checkpoint.replace('_cub-', '_caltech101-')
    part.init_cfg.checkpoint = file.replace('8500', '1300')
del part, file
param_scheduler = [
    dict(_base_.param_scheduler[0], end=130),
    dict(_base_.param_scheduler[1], begin=130, end=1300),
]
train_cfg = dict(max_iters=1300, val_interval=130)
