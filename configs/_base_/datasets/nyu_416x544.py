# NYU Depth V2 in mmsegmentation's layout, 480x640 pixels, depth in millimetres, 0 where
# depth is missing; 416x544 crops inside the border that the sensor does not cover.
dataset_type = 'NYUDataset'
data_root = 'data/nyu'
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadDepthMap', depth_rescale_factor=1e-3),
    dict(type='FixedCrop', rows=(45, 472), cols=(43, 608)),
    # Pixels rotated in from outside have no depth.
    dict(type='RandomRotate', prob=0.5, degree=2.5, seg_pad_val=0),
    dict(type='RandomFlip', prob=0.5),
    dict(type='RandomCrop', crop_size=(416, 544)),
    dict(type='RandomGammaColor'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadDepthMap', depth_rescale_factor=1e-3),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    batch_size=4,
    num_workers=4,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        type='SeededDataset',
        of=dataset_type,
        data_root=data_root,
        data_prefix=dict(img_path='images/train', depth_map_path='annotations/train'),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix=dict(img_path='images/test', depth_map_path='annotations/test'),
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(
    type='RunningDepthMetric', min_depth=1e-3, max_depth=10, crop='eigen'
)
test_evaluator = val_evaluator
