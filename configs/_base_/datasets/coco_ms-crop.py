# COCO 2017 with boxes and masks, 80 classes, with mmdetection's 3x augmentation for
# Swin: the shorter side at 480 to 800 pixels, half of the images cropped first; tested
# at 800x1333.
_base_ = ['./coco_1024x1024.py']
sides = (480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800)
scales = [(side, 1333) for side in sides]
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomChoice',
        transforms=[
            [dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)],
            [
                dict(
                    type='RandomChoiceResize',
                    scales=[(400, 1333), (500, 1333), (600, 1333)],
                    keep_ratio=True,
                ),
                dict(
                    type='RandomCrop',
                    crop_type='absolute_range',
                    crop_size=(384, 600),
                    allow_negative_crop=True,
                ),
                dict(type='RandomChoiceResize', scales=scales, keep_ratio=True),
            ],
        ],
    ),
    dict(type='PackDetInputs'),
]
# Resize.
_base_.test_pipeline[1].scale = (1333, 800)
train_dataloader = dict(batch_size=2, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=_base_.test_pipeline))
test_dataloader = val_dataloader
