# A classifier of 20 classes on two frozen networks of configs/imagenet/tiny, joined by
# bottleneck adapters; configs that inherit this choose two networks and the gaps.
_base_ = ['./datasets/tinyimagenet20_64x64.py']


def network(name, anchor, **end):
    file = f'work_dirs/{name}_1xb64-1000_tinyimagenet20-64x64/iter_1000.pth'
    weights = dict(type='Pretrained', checkpoint=file)
    anchor = dict(anchor, img_size=64, init_cfg=dict(weights, prefix='backbone.'))
    return dict(
        anchor=anchor,
        end=dict(end, init_cfg=dict(weights, prefix='head.anchor_heads.0.')),
    )


resnet = network(
    'resnet-slow',
    dict(
        type='TimmStageAnchor',
        model='resnet50',
        model_args=dict(channels=(16, 32, 64, 128), stem_type='deep', stem_width=8),
    ),
    in_channels=512,
    pooling='mean',
    norm=None,
)
swin = network(
    'swin-slow',
    dict(
        type='TimmStageAnchor',
        model='swin_tiny_patch4_window7_224',
        downsampling_blocks=True,
        model_args=dict(
            embed_dim=36,
            depths=(2, 2, 6),
            num_heads=(3, 6, 12),
            window_size=4,
            patch_size=4,
        ),
    ),
    in_channels=144,
    pooling='norm-mean',
    norm_eps=1e-5,
)
vit = network(
    'vit-b',
    dict(
        type='PlainViT',
        arch=dict(embed_dims=128, depth=6, num_heads=4),
        patch_size=16,
        layer_scale_init=None,
    ),
    in_channels=128,
    pooling='cls',
)
# In train mode, the frozen networks' statistics would mix the batches of all gaps.
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(
        type='ClsDataPreprocessor',
        num_classes=20,
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        to_rgb=True,
    ),
    backbone=dict(
        type='BridgedBackbone',
        out='end',
        frozen_eval=True,
        stitching_layer=dict(type='BottleneckAdapter', layout='code'),
    ),
    head=dict(
        type='StitchedClsHead',
        num_classes=20,
        frozen=True,
        loss=dict(type='CrossEntropyLoss', loss_weight=1.0),
    ),
)
# As on ImageNet-1K, in 300 iterations.
optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='AdamW', lr=2e-3, weight_decay=0.05)
)
param_scheduler = [
    dict(type='CosineAnnealingLR', eta_min=0, begin=0, end=300, by_epoch=False)
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=300, val_interval=300)
