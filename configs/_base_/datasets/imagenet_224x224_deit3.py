# ImageNet-1K at 224x224 with the augmentation of DeiT3's finetuning: a simple random
# crop, 3-Augment, colour jitter, each image three times (repeated augmentation, which
# SN-Netv2's authors effectively leave on). Tests resize the shorter side to 224.
# 8 GPUs, 32 images each.
dataset_type = 'ImageNet'
data_root = 'data/imagenet'
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='ResizeEdge',
        scale=224,
        edge='short',
        backend='pillow',
        interpolation='bicubic',
    ),
    # Reflects the border, which mmpretrain's crop would fill with black.
    dict(type='NumpyToPIL', to_rgb=True),
    dict(type='torchvision/RandomCrop', size=224, padding=4, padding_mode='reflect'),
    dict(type='PILToNumpy', to_bgr=True),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(
        type='RandomChoice',
        transforms=[
            [dict(type='RandomGrayscale', prob=1.0, keep_channels=True)],
            [dict(type='Solarize', thr=128, prob=1.0)],
            [
                dict(
                    type='GaussianBlur',
                    magnitude_range=(0.1, 2.0),
                    magnitude_std='inf',
                    prob=1.0,
                )
            ],
        ],
    ),
    dict(type='ColorJitter', brightness=0.3, contrast=0.3, saturation=0.3),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='ResizeEdge',
        scale=224,
        edge='short',
        backend='pillow',
        interpolation='bicubic',
    ),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    batch_size=32,
    num_workers=8,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type='SeededSampler', of='InfiniteRepeatAugSampler'),
    dataset=dict(
        type='SeededDataset',
        of=dataset_type,
        data_root=data_root,
        data_prefix='train',
        split='train',
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=64,
    num_workers=8,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix='val',
        split='val',
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
