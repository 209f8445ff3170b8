# 135 training and 40 test images with depth from a HoloLens, 540x360 pixels, resized to
# 240x160 (w x h); 16-bit depth maps in millimetres, 0 where depth is missing. Loading,
# rotation and random crop as for NYU.
dataset_type = 'NYUDataset'
data_root = 'data/depth/nyu_hololens'
scale = (240, 160)
crop_size = (128, 192)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadDepthMap', depth_rescale_factor=1e-3),
    dict(type='Resize', scale=scale, keep_ratio=False),
    # Pixels rotated in from outside have no depth.
    dict(type='RandomRotate', prob=0.5, degree=2.5, seg_pad_val=0),
    dict(type='RandomFlip', prob=0.5),
    dict(type='RandomCrop', crop_size=crop_size),
    dict(
        type='PhotoMetricDistortion',
        brightness_delta=32,
        contrast_range=(0.75, 1.25),
        saturation_range=(0.75, 1.25),
        hue_delta=9,
    ),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=scale, keep_ratio=False),
    # After the resize, so that the metric sees the full-size ground truth.
    dict(type='LoadDepthMap', depth_rescale_factor=1e-3),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    batch_size=8,
    num_workers=1,
    persistent_workers=True,
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
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix=dict(img_path='images/test', depth_map_path='annotations/test'),
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='RunningDepthMetric', min_depth=1e-3, max_depth=10)
test_evaluator = val_evaluator
auto_scale_lr = dict(base_batch_size=8)
