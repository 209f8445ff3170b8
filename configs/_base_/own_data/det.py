# Template of `tools/new_project.py --task det`, which replaces the values of the
# variables in front.
_base_ = [
    '../models/mask-rcnn_vit.py',
    '../schedules/adamw_cosine.py',
    '../detection_runtime.py',
]
data_root = 'data/my_data'
train = dict(ann_file='train.json', data_prefix=dict(img='train/'))
val = dict(ann_file='val.json', data_prefix=dict(img='val/'))
classes = ['car', 'person']
palette = [(128, 64, 128), (0, 0, 142)]
with_mask = True
max_per_image = 100
anchor_scale = 8
size = (448, 448)
patch = 14
width = 384
backbone = dict(
    type='PlainViT',
    arch='small',
    patch_size=14,
    pos_embed_antialias=True,
    layer_scale_init=1.0,
)
mean = [123.675, 116.28, 103.53]
std = [58.395, 57.12, 57.375]
batch_size = 2
# These settings depend on the variables.
# 64 channels suit small data on a CPU; ViTDet's paper uses 256.
channels = 64
strides = [patch / 4, patch / 2, patch, patch * 2]
extractor = dict(out_channels=channels, featmap_strides=strides, finest_scale=28)
roi_head = dict(
    bbox_roi_extractor=extractor,
    bbox_head=dict(
        in_channels=channels,
        conv_out_channels=channels,
        fc_out_channels=4 * channels,
        num_classes=len(classes),
    ),
)
if with_mask:
    roi_head['mask_roi_extractor'] = extractor
    roi_head['mask_head'] = dict(
        in_channels=channels, conv_out_channels=channels, num_classes=len(classes)
    )
else:
    del _base_.model.roi_head.mask_roi_extractor, _base_.model.roi_head.mask_head
model = dict(
    type='MaskRCNN' if with_mask else 'FasterRCNN',
    data_preprocessor=dict(
        mean=mean, std=std, pad_mask=with_mask, pad_size_divisor=size[0]
    ),
    backbone=dict(backbone, _delete_=True, img_size=size),
    neck=dict(
        in_channels=width, out_channels=channels, in_stride=patch, strides=strides
    ),
    rpn_head=dict(
        in_channels=channels,
        feat_channels=channels,
        anchor_generator=dict(scales=[anchor_scale], strides=strides),
    ),
    roi_head=roi_head,
    train_cfg=dict(rcnn=dict(sampler=dict(num=128))),
    test_cfg=dict(rpn=dict(max_per_img=500), rcnn=dict(max_per_img=max_per_image)),
)

dataset = dict(
    type='CocoDataset',
    data_root=data_root,
    metainfo=dict(classes=classes, palette=palette),
)
load_labels = dict(type='LoadAnnotations', with_bbox=True, with_mask=with_mask)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    load_labels,
    dict(type='RandomResize', scale=size, ratio_range=(0.8, 2.0), keep_ratio=True),
    dict(
        type='RandomCrop',
        crop_type='absolute',
        crop_size=size,
        recompute_bbox=with_mask,
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
    load_labels,
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        dataset,
        type='SeededDataset',
        of='CocoDataset',
        pipeline=train_pipeline,
        **train,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(dataset, test_mode=True, pipeline=test_pipeline, **val),
)
test_dataloader = val_dataloader
val_evaluator = dict(
    type='StitchCocoMetric',
    ann_file=val['ann_file'],
    metric=['bbox', 'segm'] if with_mask else ['bbox'],
)
test_evaluator = val_evaluator
