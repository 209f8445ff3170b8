# Template of `tools/new_project.py --task seg`: the tool replaces the lines above the
# rule with its findings.
data_root = 'data/my_data'
train = dict(
    ann_file='train.txt',
    data_prefix=dict(img_path='images/train', seg_map_path='masks/train'),
)
val = dict(
    ann_file='val.txt',
    data_prefix=dict(img_path='images/val', seg_map_path='masks/val'),
)
classes = ['road', 'car']
palette = [[128, 64, 128], [0, 0, 142]]
size = (168, 238)
patch = 14
width = 384
backbone = dict(type='PlainViT', arch='small', patch_size=14, layer_scale_init=1.0)
mean = [123.675, 116.28, 103.53]
std = [58.395, 57.12, 57.375]
batch_size = 4
# ----------------------------------------------------------------------------------
default_scope = 'mmseg'
custom_imports = dict(imports=['snnet_mm'], allow_failed_imports=False)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=mean,
        std=std,
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=size,
    ),
    backbone=dict(backbone, img_size=size),
    decode_head=dict(
        type='SETRUPHead',
        in_channels=width,
        channels=128,
        in_index=-1,
        num_classes=len(classes),
        dropout_ratio=0,
        norm_cfg=dict(type='BN'),
        num_convs=1,
        up_scale=4,
        kernel_size=1,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss'),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)

dataset = dict(data_root=data_root, metainfo=dict(classes=classes, palette=palette))
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(
        type='RandomResize',
        scale=size[::-1],
        ratio_range=(1.0, 1.75),
        keep_ratio=False,
    ),
    dict(type='RandomCrop', crop_size=size, cat_max_ratio=0.9),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=size[::-1], keep_ratio=False),
    # After the resize, because the metric compares full-size masks.
    dict(type='LoadAnnotations'),
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
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
visualizer = dict(
    type='SegLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')]
)
visualization = dict(type='SegVisualizationHook')
