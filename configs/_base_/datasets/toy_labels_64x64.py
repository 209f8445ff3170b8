# Generated scenes labelled by the class of their nearest object, 3 classes, no files.
# Visualization hooks have no image to read.
dataset_type = 'ToyLabels'
train_dataloader = dict(
    batch_size=16,
    num_workers=0,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        type='SeededDataset',
        of=dataset_type,
        split='train',
        num_scenes=1000,
        pipeline=[dict(type='PackInputs')],
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
        pipeline=[dict(type='PackInputs')],
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 2))
test_evaluator = val_evaluator
auto_scale_lr = dict(base_batch_size=16)
