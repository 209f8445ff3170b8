# NYU Depth V2 with 420x546 crops: 30x39 patches of 14 pixels.
_base_ = ['./nyu_416x544.py']
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadDepthMap', depth_rescale_factor=1e-3),
    # What is rotated in from outside has no depth.
    dict(type='RandomRotate', prob=0.5, degree=2.5, seg_pad_val=0),
    dict(type='RandomFlip', prob=0.5),
    dict(type='RandomCrop', crop_size=(420, 546)),
    dict(
        type='PhotoMetricDistortion',
        brightness_delta=32,
        contrast_range=(0.75, 1.25),
        saturation_range=(0.75, 1.25),
        hue_delta=9,
    ),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
