# AugReg-Ti alone on CUB-200-2011, trained by LoRA: a star of figure 3 (ESTA). One GPU,
# batch 64, 8500 iterations. Paper: curve only. Ours: not yet run.
_base_ = ['../../_base_/esta_fgvc.py', '../../_base_/cls_runtime.py']
data_root = 'data/fgvc/cub'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
classifier = _base_.model.model
backbone = dict(classifier.backbone.anchors[0], out='end')
head = dict(classifier.head, num_classes=200)
head['anchor_heads'] = head['anchor_heads'][:1]
model = dict(_delete_=True, **dict(classifier, backbone=backbone, head=head))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=850, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=0, begin=850, end=8500, by_epoch=False),
]
train_cfg = dict(max_iters=8500, val_interval=850)
