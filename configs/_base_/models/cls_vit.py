# A classifier on one plain ViT; width, depth and classes are set by the configs that
# inherit it.
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(
        type='ClsDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        to_rgb=True,
    ),
    backbone=dict(type='PlainViT', out='end'),
    head=dict(
        type='StitchedClsHead',
        num_classes=None,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
    ),
)
