# CamVid at half resolution, 11 classes; images 480x360, resized to 240x176 (w x h).
dataset_type = 'BaseSegDataset'
data_root = 'data/camvid'
crop_size = (176, 240)
scale = (240, 176)
metainfo = dict(
    classes=(
        'sky',
        'building',
        'pole',
        'road',
        'pavement',
        'tree',
        'sign',
        'fence',
        'car',
        'pedestrian',
        'bicyclist',
    ),
    # Not CamVid's own colours, because several of them are similar.
    palette=[
        [100, 180, 255],
        [128, 0, 0],
        [255, 255, 255],
        [128, 64, 128],
        [244, 35, 232],
        [0, 130, 0],
        [255, 220, 0],
        [255, 150, 90],
        [0, 0, 160],
        [255, 0, 0],
        [0, 255, 200],
    ],
)
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
    # After the resize, so that the metric sees the full-size labels.
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
dataset = dict(
    data_root=data_root, metainfo=metainfo, img_suffix='.jpg', seg_map_suffix='.png'
)
train_dataloader = dict(
    batch_size=8,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        type='SeededDataset',
        of=dataset_type,
        data_prefix=dict(img_path='images/train', seg_map_path='annotations/train'),
        pipeline=train_pipeline,
        **dataset,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_prefix=dict(img_path='images/val', seg_map_path='annotations/val'),
        pipeline=test_pipeline,
        **dataset,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
auto_scale_lr = dict(base_batch_size=8)
