# A classifier on two frozen networks, joined by bottleneck adapters; classes, networks
# and gaps are set by the configs that inherit it. As in the authors' code, frozen
# networks are in train mode and bottlenecks have no norms around them. To follow the
# text, set model.backbone.frozen_eval=True model.backbone.stitching_layer.layout=text.
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
        frozen_eval=False,
        stitching_layer=dict(type='BottleneckAdapter', layout='code'),
    ),
    head=dict(
        type='StitchedClsHead',
        num_classes=None,
        frozen=True,
        loss=dict(type='CrossEntropyLoss', loss_weight=1.0),
    ),
)
