# A classifier of 20 classes on two frozen networks of configs/imagenet/tiny, joined by
# bottleneck adapters; configs that inherit this choose two, and the gaps.
_base_ = ['./bridged_cls.py']
resnet = dict(
    anchor=dict(
        type='TimmStageAnchor',
        model='resnet50',
        model_args=dict(channels=(16, 32, 64, 128), stem_type='deep', stem_width=8),
        img_size=64,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='work_dirs/resnet-slow_1xb64-1000_tinyimagenet20-64x64/'
            'iter_1000.pth',
            prefix='backbone.',
        ),
    ),
    end=dict(
        in_channels=512,
        pooling='mean',
        norm=None,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='work_dirs/resnet-slow_1xb64-1000_tinyimagenet20-64x64/'
            'iter_1000.pth',
            prefix='head.anchor_heads.0.',
        ),
    ),
)
swin = dict(
    anchor=dict(
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
        img_size=64,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='work_dirs/swin-slow_1xb64-1000_tinyimagenet20-64x64/'
            'iter_1000.pth',
            prefix='backbone.',
        ),
    ),
    end=dict(
        in_channels=144,
        pooling='norm-mean',
        norm_eps=1e-5,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='work_dirs/swin-slow_1xb64-1000_tinyimagenet20-64x64/'
            'iter_1000.pth',
            prefix='head.anchor_heads.0.',
        ),
    ),
)
vit = dict(
    anchor=dict(
        type='PlainViT',
        arch=dict(embed_dims=128, depth=6, num_heads=4),
        img_size=64,
        patch_size=16,
        layer_scale_init=None,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='work_dirs/vit-b_1xb64-1000_tinyimagenet20-64x64/iter_1000.pth',
            prefix='backbone.',
        ),
    ),
    end=dict(
        in_channels=128,
        pooling='cls',
        init_cfg=dict(
            type='Pretrained',
            checkpoint='work_dirs/vit-b_1xb64-1000_tinyimagenet20-64x64/iter_1000.pth',
            prefix='head.anchor_heads.0.',
        ),
    ),
)
model = dict(
    data_preprocessor=dict(num_classes=20),
    head=dict(num_classes=20),
)
