# Generated scenes, 5 classes, no files. Visualization hooks have no image to read.
dataset_type = 'ToyScenes'
train_dataloader = dict(
    batch_size=16,
    num_workers=0,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        type='SeededDataset',
        of=dataset_type,
        split='train',
        num_scenes=1000,
        pipeline=[dict(type='RandomFlip', prob=0.5), dict(type='PackSegInputs')],
    ),
)
val_dataloader = dict(
    batch_size=10,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        split='val',
        num_scenes=100,
        pipeline=[dict(type='PackSegInputs')],
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
auto_scale_lr = dict(base_batch_size=16)
