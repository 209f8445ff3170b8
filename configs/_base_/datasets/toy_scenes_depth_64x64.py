# Generated scenes with depth, no files. The sky, at 20 m, is not evaluated.
# Visualization hooks have no image to read.
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
        depth=True,
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
        depth=True,
        pipeline=[dict(type='PackSegInputs')],
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='RunningDepthMetric', max_depth=20)
test_evaluator = val_evaluator
auto_scale_lr = dict(base_batch_size=16)
