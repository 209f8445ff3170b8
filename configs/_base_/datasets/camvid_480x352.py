# CamVid at full resolution, 11 classes; images 480x360, resized to 480x352 (w x h).
_base_ = ['./camvid_240x176.py']
crop_size = (352, 480)
scale = (480, 352)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomResize', scale=scale, ratio_range=(1.0, 1.75), keep_ratio=False),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.9),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=scale, keep_ratio=False),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(num_workers=4, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(num_workers=4, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
