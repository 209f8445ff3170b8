# EoMT on DINOv2 ViT-S/14 for own images and masks, which the files list in pairs. The
# head consists of the last 3 blocks. tools/new_project.py writes configs that inherit
# this one.
_base_ = [
    '../models/setr-naive_vit.py',
    './schedule.py',
    '../default_runtime.py',
]
data_root = 'data/my_data'
train_file = 'train.txt'
val_file = 'val.txt'
classes = ['class_0', 'class_1']
size = (168, 238)
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg.eomt'],
    allow_failed_imports=False,
)
weights = dict(type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2')
vit = dict(
    type='PlainViT',
    img_size=size,
    patch_size=14,
    pos_embed_antialias=True,
    layer_scale_init=1.0,
)
model = dict(
    data_preprocessor=dict(size=size),
    backbone=dict(
        arch=dict(embed_dims=384, depth=9, num_heads=6),
        with_cls=True,
        init_cfg=dict(blocks=(0, 9), **weights),
        **vit,
    ),
    decode_head=dict(
        _delete_=True,
        type='EoMTSegHead',
        num_classes=len(classes),
        num_queries=50,
        vit=dict(
            arch=dict(embed_dims=384, depth=3, num_heads=6),
            final_norm=True,
            init_cfg=dict(blocks=(9, 12), **weights),
            **vit,
        ),
    ),
)
dataset = dict(
    type='PairedDataset',
    data_root=data_root,
    data_prefix=dict(img_path='', seg_map_path=''),
    metainfo=dict(classes=classes, palette=[(0, 0, 0), (255, 0, 0)]),
)
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
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
low = dict(lr_mult=0.03)
optim_wrapper = dict(
    optimizer=dict(lr=1e-3),
    paramwise_cfg=dict(
        custom_keys={'_delete_': True, 'backbone': low, 'decode_head.vit': low}
    ),
)
auto_scale_lr = dict(base_batch_size=4)
default_hooks = dict(logger=dict(interval=10), checkpoint=dict(max_keep_ckpts=1))
