# A linear layer on DINOv2 ViT-S/14 for own images of classes, which the files list.
# tools/new_project.py writes configs that inherit this one.
_base_ = [
    '../models/cls_vit.py',
    './schedule.py',
    '../cls_runtime.py',
]
data_root = 'data/my_data'
train_file = 'train.txt'
val_file = 'val.txt'
classes = ['class_0', 'class_1']
size = (224, 224)
model = dict(
    backbone=dict(
        _delete_=True,
        type='TimmAnchor',
        model='vit_small_patch14_dinov2',
        img_size=size,
        final_norm=False,
        out='end',
        init_cfg=dict(type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2'),
    ),
    head=dict(
        num_classes=len(classes), anchor_heads=[dict(in_channels=384, pooling='cls')]
    ),
)
dataset = dict(
    type='CustomDataset', data_root=data_root, metainfo=dict(classes=classes)
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=size[::-1], crop_ratio_range=(0.35, 1.0)),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='ColorJitter', brightness=0.3, contrast=0.3, saturation=0.3),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=size[::-1]),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    batch_size=32,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        dataset,
        type='SeededDataset',
        of='CustomDataset',
        ann_file=train_file,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=32,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(dataset, ann_file=val_file, pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
optim_wrapper = dict(
    optimizer=dict(lr=1e-3),
    paramwise_cfg=dict(custom_keys=dict(_delete_=True, backbone=dict(lr_mult=0.03))),
)
auto_scale_lr = dict(base_batch_size=32)
default_hooks = dict(logger=dict(interval=10), checkpoint=dict(max_keep_ckpts=1))
