# "Bridging Large Gaps" (section 2) on ImageNet-1K: a classifier on two frozen networks,
# joined by bottleneck adapters from the first stage to the last; for other gaps set
# backbone.stages. The networks are the paper's, except that its Swin-T is
# torchvision's; configs that inherit this choose two.
# As in the authors' code, frozen networks are in train mode and bottlenecks have no
# norms around them. To follow the text, set model.backbone.frozen_eval=True
# model.backbone.stitching_layer.layout=text.
_base_ = ['./datasets/imagenet_224x224_autoaugment.py']


def network(checkpoint, anchor, **end):
    weights = dict(type='Pretrained', checkpoint=f'timm://{checkpoint}')
    return dict(
        anchor=dict(init_cfg=weights, **anchor), end=dict(init_cfg=weights, **end)
    )


resnet50 = network(
    'resnet50.a1_in1k',
    dict(type='TimmStageAnchor', model='resnet50'),
    in_channels=2048,
    pooling='mean',
    norm=None,
)
mobilenetv3 = network(
    'mobilenetv3_large_100.ra_in1k',
    dict(type='TimmStageAnchor', model='mobilenetv3_large_100'),
    in_channels=960,
    pooling='mean',
    norm=None,
    hidden=1280,
)
vit_s = network(
    'vit_small_patch16_224.augreg_in1k',
    dict(type='TimmAnchor', model='vit_small_patch16_224', final_norm=False),
    in_channels=384,
    pooling='cls',
)
swin_t = network(
    'swin_tiny_patch4_window7_224.ms_in1k',
    dict(
        type='TimmStageAnchor',
        model='swin_tiny_patch4_window7_224',
        downsampling_blocks=True,
        drop_path_rate=0.2,  # torchvision's
    ),
    in_channels=768,
    pooling='norm-mean',
    norm_eps=1e-5,
)
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(
        type='ClsDataPreprocessor',
        num_classes=1000,
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        to_rgb=True,
    ),
    backbone=dict(
        type='BridgedBackbone',
        out='end',
        stages=[(0, 3)],
        frozen_eval=False,
        stitching_layer=dict(type='BottleneckAdapter', layout='code'),
    ),
    head=dict(
        type='StitchedClsHead',
        num_classes=1000,
        frozen=True,
        loss=dict(type='CrossEntropyLoss', loss_weight=1.0),
    ),
)
# 10 epochs with batch 512: AdamW and a cosine to 0. The paper mentions neither warm-up
# nor clipping.
optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='AdamW', lr=2e-3, weight_decay=0.05)
)
param_scheduler = [
    dict(type='CosineAnnealingLR', eta_min=0, begin=0, end=25030, by_epoch=False)
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=25030, val_interval=2503)
