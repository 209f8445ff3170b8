# Template of `tools/new_project.py --task depth`, which replaces the values of the
# variables in front.
_base_ = [
    '../models/dpt_vit.py',
    '../schedules/adamw_cosine.py',
    '../default_runtime.py',
]
data_root = 'data/my_data'
train = dict(
    ann_file='train.txt',
    data_prefix=dict(img_path='images/train', depth_map_path='depth/train'),
)
val = dict(
    ann_file='val.txt',
    data_prefix=dict(img_path='images/val', depth_map_path='depth/val'),
)
depth_scale = 1e-3
max_depth = 10
size = (168, 252)
patch = 14
width = 384
readout = 'project'
backbone = dict(
    type='PlainViT',
    arch='small',
    patch_size=14,
    pos_embed_antialias=True,
    layer_scale_init=1.0,
    out_indices=(2, 5, 8, 11),
    with_cls=True,
)
mean = [123.675, 116.28, 103.53]
std = [58.395, 57.12, 57.375]
batch_size = 4
# These settings depend on the variables.
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.depth_parts'], allow_failed_imports=False
)
model = dict(
    data_preprocessor=dict(
        mean=mean, std=std, size=size, test_cfg=dict(size_divisor=patch)
    ),
    backbone=dict(backbone, _delete_=True, img_size=size),
    decode_head=dict(
        in_channels=width,
        channels=64,
        post_process_channels=(48, 96, 192, 384),
        readout_type=readout,
        max_depth=max_depth,
        loss_decode=dict(warm_up_iters=20),
    ),
)

dataset = dict(data_root=data_root)
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
    batch_size=batch_size,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        type='SeededDataset',
        of='PairedDataset',
        pipeline=train_pipeline,
        **train,
        **dataset,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='PairedDataset', pipeline=test_pipeline, **val, **dataset),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='RunningDepthMetric', min_depth=1e-3, max_depth=max_depth)
test_evaluator = val_evaluator
