# mmdetection's 3x recipe for Swin on COCO 2017: the shorter side at 480 to 800 pixels,
# half of the images cropped first; tested at 800x1333. 36 epochs with batch 16, 7330
# iterations each. Biases, norms and positions have no weight decay.
_base_ = ['./datasets/coco_1024x1024.py']
del _base_.image_size  # of the base's crops
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
_base_.test_pipeline[1].scale = (1333, 800)
train_dataloader = dict(batch_size=2, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=_base_.test_pipeline))
test_dataloader = val_dataloader
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    constructor='AnchorLayerDecayConstructor',
    paramwise_cfg=dict(decay_rates=1.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=1000, by_epoch=False),
    dict(
        type='MultiStepLR',
        begin=0,
        end=263880,
        milestones=[197910, 241890],
        gamma=0.1,
        by_epoch=False,
    ),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=263880, val_interval=21990)
auto_scale_lr = dict(base_batch_size=16)
