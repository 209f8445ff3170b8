# ViTDet's Mask R-CNN on DINOv2 ViT-S/14 for own images with boxes and outlines.
# tools/new_project.py writes configs that inherit this one.
_base_ = [
    '../models/mask-rcnn_vit.py',
    './schedule.py',
    '../detection_runtime.py',
]
data_root = 'data/my_data'
train_file = 'train.json'
val_file = 'val.json'
classes = ['class_1', 'class_2']
size = (448, 448)
# 64 channels suit small data on a CPU; ViTDet's paper uses 256.
channels = 64
strides = [3.5, 7, 14, 28]
extractor = dict(out_channels=channels, featmap_strides=strides, finest_scale=28)
model = dict(
    data_preprocessor=dict(pad_size_divisor=size[0]),
    backbone=dict(
        _delete_=True,
        type='TimmAnchor',
        model='vit_small_patch14_dinov2',
        img_size=size,
        final_norm=False,
        init_cfg=dict(type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2'),
    ),
    neck=dict(in_channels=384, out_channels=channels, in_stride=14, strides=strides),
    rpn_head=dict(
        in_channels=channels,
        feat_channels=channels,
        anchor_generator=dict(scales=[8], strides=strides),
    ),
    roi_head=dict(
        bbox_roi_extractor=extractor,
        bbox_head=dict(
            in_channels=channels,
            conv_out_channels=channels,
            fc_out_channels=4 * channels,
            num_classes=len(classes),
        ),
        mask_roi_extractor=extractor,
        mask_head=dict(
            in_channels=channels, conv_out_channels=channels, num_classes=len(classes)
        ),
    ),
    train_cfg=dict(rcnn=dict(sampler=dict(num=128))),
    test_cfg=dict(rpn=dict(max_per_img=500)),
)
dataset = dict(
    type='CocoDataset',
    data_root=data_root,
    data_prefix=dict(img=''),
    metainfo=dict(classes=classes, palette=[(0, 0, 0), (255, 0, 0)]),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomResize', scale=size, ratio_range=(0.8, 2.0), keep_ratio=True),
    dict(
        type='RandomCrop',
        crop_type='absolute',
        crop_size=size,
        recompute_bbox=True,
        allow_negative_crop=True,
    ),
    dict(type='FilterAnnotations', min_gt_bbox_wh=(1e-2, 1e-2)),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=size, keep_ratio=True),
    # After the resize, because detections are compared at the file's resolution.
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
train_dataloader = dict(
    batch_size=2,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        dataset,
        type='SeededDataset',
        of='CocoDataset',
        ann_file=train_file,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(dataset, test_mode=True, ann_file=val_file, pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(
    type='StitchCocoMetric',
    ann_file=f'{data_root}/{val_file}',
    metric=['bbox', 'segm'],
)
test_evaluator = val_evaluator
# At the rate of the other tasks' heads, detection does not learn.
optim_wrapper = dict(
    optimizer=dict(lr=3e-4),
    paramwise_cfg=dict(custom_keys=dict(_delete_=True, backbone=dict(lr_mult=0.1))),
)
auto_scale_lr = dict(base_batch_size=2)
default_hooks = dict(logger=dict(interval=10), checkpoint=dict(max_keep_ckpts=1))
