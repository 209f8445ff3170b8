# Nuclei of DSB2018, loaded and evaluated as COCO: 531 training and 133 validation
# images, 1 class, 27 nuclei in the median image and up to 375; images 256x256 to
# 1388x1040.
_base_ = ['./coco_1024x1024.py']
data_root = 'data/nuclei_coco/'
image_size = (256, 256)
metainfo = dict(classes=('nucleus',), palette=[(220, 20, 60)])
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(
        type='RandomResize', scale=image_size, ratio_range=(0.8, 2.0), keep_ratio=True
    ),
    dict(
        type='RandomCrop',
        crop_type='absolute',
        crop_size=image_size,
        recompute_bbox=True,
        allow_negative_crop=True,
    ),
    dict(type='FilterAnnotations', min_gt_bbox_wh=(1e-2, 1e-2)),
    dict(
        type='RandomFlip', prob=0.75, direction=['horizontal', 'vertical', 'diagonal']
    ),
    dict(type='PackDetInputs'),
]
# Resize.
_base_.test_pipeline[1].scale = image_size
train_dataloader = dict(
    batch_size=2,
    num_workers=1,
    dataset=dict(
        _delete_=True,
        type='SeededDataset',
        of=_base_.dataset_type,
        data_root=data_root,
        ann_file='annotations/instances_train.json',
        data_prefix=dict(img='train/'),
        metainfo=metainfo,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    num_workers=1,
    dataset=dict(
        data_root=data_root,
        ann_file='annotations/instances_val.json',
        data_prefix=dict(img='val/'),
        metainfo=metainfo,
        pipeline=_base_.test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + 'annotations/instances_val.json')
test_evaluator = val_evaluator
