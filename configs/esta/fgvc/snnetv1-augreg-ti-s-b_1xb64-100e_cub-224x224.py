# ESTA on CUB-200-2011: 200 classes, 5394 training images. AugReg-Ti, S and B,
# 71 stitches (section 5.1). One GPU, batch 64, 8500 iterations.
# Paper: figure 3 shows a curve only. Ours: not yet run.
_base_ = ['../../_base_/esta_fgvc.py', '../../_base_/stitched_cls_runtime.py']
data_root = 'data/fgvc/cub'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = dict(model=dict(head=dict(num_classes=200)))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=850, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=0, begin=850, end=8500, by_epoch=False),
]
train_cfg = dict(max_iters=8500, val_interval=850)
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(
            _delete_=True,
            type='SandwichSampler',
            anchors='slowest',
            sampler=dict(type='ImportanceSampler', warm_up=850),
        )
    )
)
