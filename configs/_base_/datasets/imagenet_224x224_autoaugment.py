# ImageNet-1K at 224x224 with the augmentation of "Bridging Large Gaps": random crops,
# flips and AutoAugment (section 2). All resizing is bilinear, as in the authors' code;
# tests resize the shorter side to 256. 2 GPUs with 256 images each, as many as batch
# norms see at once.
_base_ = ['./imagenet_224x224_deit3.py']
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='RandomResizedCrop', scale=224, backend='pillow', interpolation='bilinear'
    ),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(
        type='AutoAugment', policies='imagenet', hparams=dict(pad_val=[104, 116, 124])
    ),
    dict(type='PackInputs'),
]
_base_.test_pipeline[1].update(scale=256, interpolation='bilinear')
train_dataloader = dict(
    batch_size=256,
    sampler=dict(_delete_=True, type='SeededSampler', shuffle=True),
    dataset=dict(pipeline=train_pipeline),
)
val_dataloader = dict(dataset=dict(pipeline=_base_.test_pipeline))
test_dataloader = val_dataloader
auto_scale_lr = dict(base_batch_size=512)
