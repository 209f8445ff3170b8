# A classifier on two frozen networks, joined by bottleneck adapters; classes, networks
# and gaps are set by the configs that inherit it.
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(
        type='ClsDataPreprocessor',
        num_classes=None,
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        to_rgb=True,
    ),
    backbone=dict(
        type='BridgedBackbone',
        out='end',
        stitching_layer=dict(type='BottleneckAdapter'),
    ),
    head=dict(
        type='StitchedClsHead',
        num_classes=None,
        frozen=True,
        loss=dict(type='CrossEntropyLoss', loss_weight=1.0),
    ),
)
