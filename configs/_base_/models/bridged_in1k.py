# A classifier of ImageNet-1K on two frozen networks, joined by bottleneck adapters from
# the first stage to the last ("Bridging Large Gaps", section 2); other gaps are other
# backbone.stages. The networks are those of the paper, but that its Swin-T is
# torchvision's; configs that inherit this choose two.
_base_ = ['./bridged_cls.py']
resnet50 = dict(
    anchor=dict(
        type='TimmStageAnchor',
        model='resnet50',
        init_cfg=dict(type='Pretrained', checkpoint='timm://resnet50.a1_in1k'),
    ),
    end=dict(
        in_channels=2048,
        pooling='mean',
        norm=None,
        init_cfg=dict(type='Pretrained', checkpoint='timm://resnet50.a1_in1k'),
    ),
)
mobilenetv3 = dict(
    anchor=dict(
        type='TimmStageAnchor',
        model='mobilenetv3_large_100',
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://mobilenetv3_large_100.ra_in1k'
        ),
    ),
    end=dict(
        in_channels=960,
        pooling='mean',
        norm=None,
        hidden=1280,
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://mobilenetv3_large_100.ra_in1k'
        ),
    ),
)
vit_s = dict(
    anchor=dict(
        type='TimmAnchor',
        model='vit_small_patch16_224',
        final_norm=False,
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://vit_small_patch16_224.augreg_in1k'
        ),
    ),
    end=dict(
        in_channels=384,
        pooling='cls',
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://vit_small_patch16_224.augreg_in1k'
        ),
    ),
)
swin_t = dict(
    anchor=dict(
        type='TimmStageAnchor',
        model='swin_tiny_patch4_window7_224',
        downsampling_blocks=True,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='timm://swin_tiny_patch4_window7_224.ms_in1k',
        ),
    ),
    end=dict(
        in_channels=768,
        pooling='norm-mean',
        norm_eps=1e-5,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='timm://swin_tiny_patch4_window7_224.ms_in1k',
        ),
    ),
)
# Images are normalised as the first network knows them; AugReg's mean and deviation.
half = dict(mean=[127.5, 127.5, 127.5], std=[127.5, 127.5, 127.5])
model = dict(
    data_preprocessor=dict(num_classes=1000),
    backbone=dict(stages=[(0, 3)]),
    head=dict(num_classes=1000),
)
