# ESTA on AugReg-Ti, S and B, ImageNet-21K: 71 stitches. The largest anchor is trained
# in every iteration and teaches by hard labels (sections 4 and 5.1). The classes are
# set by the configs that inherit it.
anchor = dict(
    type='PlainViT',
    img_size=224,
    pos_embed_prefix=True,
    layer_scale_init=None,
    # Pretrained and frozen like the anchors, so the heads have no norm.
    final_norm=True,
)
model = dict(
    type='SandwichWrapper',
    labels='hard',
    alpha=0.5,
    model=dict(
        type='ImageClassifier',
        data_preprocessor=dict(
            type='ClsDataPreprocessor',
            # ImageNet's, as in VPT's code; AugReg itself was trained with 127.5.
            mean=[123.675, 116.28, 103.53],
            std=[58.395, 57.12, 57.375],
            to_rgb=True,
        ),
        backbone=dict(
            type='SNNetv1',
            out='end',
            plugins=dict(stitch_biases=dict(type='StitchBiases')),
            anchors=[
                dict(
                    arch=arch,
                    lora=dict(rank=rank, alpha=rank),
                    init_cfg=dict(
                        type='Pretrained',
                        checkpoint=f'checkpoints/vit_{arch}_patch16_224.augreg_in21k.bin',
                    ),
                    **anchor,
                )
                for arch, rank in (('tiny', 32), ('small', 16), ('base', 8))
            ],
            stitching_layer=dict(
                type='LoRAStitchingLayer', rank=0.25, alpha=None, train_bias=False
            ),
            kernel=2,
            stride=1,
        ),
        head=dict(
            type='StitchedClsHead',
            num_classes=None,
            anchor_heads=[dict(in_channels=n, norm=None) for n in (192, 384, 768)],
            loss=dict(type='CrossEntropyLoss', loss_weight=1.0),
        ),
    ),
)
