# Template of `tools/new_project.py --task cls`, which replaces the values of the
# variables in front.
_base_ = [
    '../models/cls_vit.py',
    '../schedules/adamw_cosine.py',
    '../cls_runtime.py',
]
data_root = 'data/my_data'
train = dict(ann_file='train.txt', data_prefix='train')
val = dict(ann_file='val.txt', data_prefix='val')
classes = ['cat', 'dog']
size = (224, 224)
patch = 14
width = 384
pooling = 'cls'
backbone = dict(
    type='PlainViT',
    arch='small',
    patch_size=14,
    pos_embed_antialias=True,
    layer_scale_init=1.0,
    out='end',
)
mean = [123.675, 116.28, 103.53]
std = [58.395, 57.12, 57.375]
batch_size = 32
# These settings depend on the variables.
model = dict(
    data_preprocessor=dict(mean=mean, std=std),
    backbone=dict(backbone, _delete_=True, img_size=size),
    head=dict(
        num_classes=len(classes),
        anchor_heads=[dict(in_channels=width, pooling=pooling)],
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
    batch_size=batch_size,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        dataset,
        type='SeededDataset',
        of='CustomDataset',
        pipeline=train_pipeline,
        **train,
    ),
)
val_dataloader = dict(
    batch_size=batch_size,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(dataset, pipeline=test_pipeline, **val),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
