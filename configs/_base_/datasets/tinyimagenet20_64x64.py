# 20 classes of Tiny ImageNet, 4000 training and 1000 validation images of 64x64 pixels
# in a folder per class.
dataset_type = 'CustomDataset'
data_root = 'data/tinyimagenet20'
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=64, crop_ratio_range=(0.35, 1.0)),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='ColorJitter', brightness=0.3, contrast=0.3, saturation=0.3),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(64, 64)),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    batch_size=64,
    num_workers=0,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        type='SeededDataset',
        of=dataset_type,
        data_root=data_root,
        data_prefix='train',
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=100,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix='val',
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
auto_scale_lr = dict(base_batch_size=64)
