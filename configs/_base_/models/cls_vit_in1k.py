# A classifier of ImageNet-1K on one plain ViT, with DeiT's mixup and CutMix.
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(
        type='ClsDataPreprocessor',
        num_classes=1000,
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        to_rgb=True,
    ),
    backbone=dict(type='PlainViT', out='end'),
    head=dict(
        type='StitchedClsHead',
        num_classes=1000,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
    ),
    train_cfg=dict(
        augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]
    ),
)
