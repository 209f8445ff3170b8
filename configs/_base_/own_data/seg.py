# Template of `tools/new_project.py --task seg`, which replaces the values of the
# variables in front.
_base_ = [
    '../models/setr-naive_vit.py',
    '../schedules/adamw_cosine.py',
    '../default_runtime.py',
]
data_root = 'data/my_data'
train = dict(
    ann_file='train.txt',
    data_prefix=dict(img_path='images/train', seg_map_path='masks/train'),
)
val = dict(
    ann_file='val.txt',
    data_prefix=dict(img_path='images/val', seg_map_path='masks/val'),
)
classes = ['road', 'car']
palette = [[128, 64, 128], [0, 0, 142]]
size = (168, 238)
patch = 14
width = 384
backbone = dict(
    type='PlainViT',
    arch='small',
    patch_size=14,
    pos_embed_antialias=True,
    layer_scale_init=1.0,
)
mean = [123.675, 116.28, 103.53]
std = [58.395, 57.12, 57.375]
batch_size = 4
# These settings depend on the variables.
model = dict(
    data_preprocessor=dict(mean=mean, std=std, size=size),
    backbone=dict(backbone, _delete_=True, img_size=size),
    decode_head=dict(in_channels=width, channels=128, num_classes=len(classes)),
)

dataset = dict(data_root=data_root, metainfo=dict(classes=classes, palette=palette))
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(
        type='RandomResize',
        scale=size[::-1],
        ratio_range=(1.0, 1.75),
        keep_ratio=False,
    ),
    dict(type='RandomCrop', crop_size=size, cat_max_ratio=0.9),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=size[::-1], keep_ratio=False),
    # After the resize, because the metric compares full-size masks.
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        type='SeededDataset',
        of='PairedDataset',
        pipeline=train_pipeline,
        **train,
        **dataset,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='PairedDataset', pipeline=test_pipeline, **val, **dataset),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
