# Generated scenes with the boxes and masks of their objects, one class, no files.
# Visualization hooks have no image to read.
dataset_type = 'ToyObjects'
load_instances = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
meta_keys = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')
train_dataloader = dict(
    batch_size=8,
    num_workers=0,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        type='SeededDataset',
        of=dataset_type,
        split='train',
        num_scenes=1000,
        pipeline=[
            load_instances,
            dict(type='RandomFlip', prob=0.5),
            dict(type='PackDetInputs'),
        ],
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
        pipeline=[
            load_instances,
            # Labels for the metric, which has no annotation file.
            dict(type='PackDetInputs', meta_keys=(*meta_keys, 'instances')),
        ],
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(
    type='StitchCocoMetric',
    metric=['bbox', 'segm'],
    metric_items=['mAP', 'mAP_50', 'mAP_75'],
)
test_evaluator = val_evaluator
auto_scale_lr = dict(base_batch_size=8)
