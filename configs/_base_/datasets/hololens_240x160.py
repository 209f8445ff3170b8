# 135 training and 40 test images with depth from a HoloLens, 540x360 pixels, resized to
# 240x160 (w x h); 16-bit depth maps in millimetres, 0 where depth is missing. Loading,
# rotation and random crop as for NYU.
_base_ = ['./nyu_416x544.py']
data_root = 'data/depth/nyu_hololens'
scale = (240, 160)
crop_size = (128, 192)
train_pipeline = [
    *_base_.train_pipeline[:2],
    dict(type='Resize', scale=scale, keep_ratio=False),
    # RandomRotate, RandomFlip, RandomCrop; no FixedCrop of the border.
    *_base_.train_pipeline[3:6],
    dict(
        type='PhotoMetricDistortion',
        brightness_delta=32,
        contrast_range=(0.75, 1.25),
        saturation_range=(0.75, 1.25),
        hue_delta=9,
    ),
    dict(type='PackSegInputs'),
]
# RandomCrop.
train_pipeline[5].crop_size = crop_size
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
    dataset=dict(data_root=data_root, pipeline=train_pipeline),
)
val_dataloader = dict(
    num_workers=1, dataset=dict(data_root=data_root, pipeline=test_pipeline)
)
test_dataloader = val_dataloader
val_evaluator = dict(
    _delete_=True, type='RunningDepthMetric', min_depth=1e-3, max_depth=10
)
test_evaluator = val_evaluator
