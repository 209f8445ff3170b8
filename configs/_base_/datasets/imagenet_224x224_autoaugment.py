# ImageNet-1K at 224x224 with the augmentation of "Bridging Large Gaps": random crops,
# flips and AutoAugment (section 2). All resizing is bilinear, as in the authors' code.
# One GPU with 512 images, or 8 with 64 each.
_base_ = ['./imagenet_224x224_deit.py']
train_pipeline = [
    # LoadImageFromFile, RandomResizedCrop, RandomFlip.
    *_base_.train_pipeline[:3],
    dict(
        type='AutoAugment', policies='imagenet', hparams=dict(pad_val=[104, 116, 124])
    ),
    dict(type='PackInputs'),
]
# RandomResizedCrop and ResizeEdge.
train_pipeline[1].interpolation = 'bilinear'
_base_.test_pipeline[1].interpolation = 'bilinear'
train_dataloader = dict(
    batch_size=64,
    sampler=dict(_delete_=True, type='SeededSampler', shuffle=True),
    dataset=dict(pipeline=train_pipeline),
)
val_dataloader = dict(dataset=dict(pipeline=_base_.test_pipeline))
test_dataloader = val_dataloader
