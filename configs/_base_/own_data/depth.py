# DPT on DINOv2 ViT-S/14 for own images and depth maps, which the files list in pairs.
# tools/new_project.py writes configs that inherit this one.
_base_ = [
    '../models/dpt_vit.py',
    './schedule.py',
    '../default_runtime.py',
]
data_root = 'data/my_data'
train_file = 'train.txt'
val_file = 'val.txt'
depth_scale = 1e-3
max_depth = 10
size = (168, 252)
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg'], allow_failed_imports=False
)
model = dict(
    data_preprocessor=dict(
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        size=size,
        test_cfg=dict(size_divisor=14),
    ),
    backbone=dict(
        _delete_=True,
        type='TimmAnchor',
        model='vit_small_patch14_dinov2',
        img_size=size,
        final_norm=False,
        out_indices=(2, 5, 8, 11),
        with_cls=True,
        init_cfg=dict(type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2'),
    ),
    decode_head=dict(
        in_channels=384,
        channels=64,
        post_process_channels=(48, 96, 192, 384),
        max_depth=max_depth,
        loss_decode=dict(warm_up_iters=20),
    ),
)
dataset = dict(
    type='PairedDataset',
    data_root=data_root,
    data_prefix=dict(img_path='', depth_map_path=''),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadDepthMap', depth_rescale_factor=depth_scale),
    dict(type='Resize', scale=size[::-1], keep_ratio=False),
    dict(type='RandomRotate', prob=0.5, degree=2.5, seg_pad_val=0),
    dict(type='RandomFlip', prob=0.5),
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
    dict(type='Resize', scale=size[::-1], keep_ratio=False),
    # After the resize, because the metric compares full-size depth maps.
    dict(type='LoadDepthMap', depth_rescale_factor=depth_scale),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    batch_size=4,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        dataset,
        type='SeededDataset',
        of='PairedDataset',
        ann_file=train_file,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(dataset, ann_file=val_file, pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='RunningDepthMetric', min_depth=1e-3, max_depth=max_depth)
test_evaluator = val_evaluator
# At the rate of the other tasks' heads, depth saturates.
optim_wrapper = dict(
    optimizer=dict(lr=3e-4),
    paramwise_cfg=dict(custom_keys=dict(_delete_=True, backbone=dict(lr_mult=0.1))),
)
auto_scale_lr = dict(base_batch_size=4)
default_hooks = dict(logger=dict(interval=10), checkpoint=dict(max_keep_ckpts=1))
