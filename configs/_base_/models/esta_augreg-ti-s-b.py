# ESTA on AugReg-Ti, S and B, ImageNet-21K: 71 stitches, trained with the largest anchor
# in every iteration, which teaches by hard labels (sections 4 and 5.1). The classes are
# set by the configs that inherit it.
anchor = dict(
    type='PlainViT',
    img_size=224,
    pos_embed_prefix=True,
    layer_scale_init=None,
    # Pretrained and frozen, as all of the anchors: the heads have none.
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
            mean=[127.5, 127.5, 127.5],
            std=[127.5, 127.5, 127.5],
            to_rgb=True,
        ),
        backbone=dict(
            type='SNNetv1',
            out='end',
            plugins=dict(stitch_biases=dict(type='StitchBiases')),
            anchors=[
                dict(
                    arch='tiny',
                    lora=dict(rank=32, alpha=32),
                    init_cfg=dict(
                        type='Pretrained',
                        checkpoint='checkpoints/vit_tiny_patch16_224.augreg_in21k.bin',
                    ),
                    **anchor,
                ),
                dict(
                    arch='small',
                    lora=dict(rank=16, alpha=16),
                    init_cfg=dict(
                        type='Pretrained',
                        checkpoint='checkpoints/vit_small_patch16_224.augreg_in21k.bin',
                    ),
                    **anchor,
                ),
                dict(
                    arch='base',
                    lora=dict(rank=8, alpha=8),
                    init_cfg=dict(
                        type='Pretrained',
                        checkpoint='checkpoints/vit_base_patch16_224.augreg_in21k.bin',
                    ),
                    **anchor,
                ),
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
            anchor_heads=[
                dict(in_channels=192, norm=None),
                dict(in_channels=384, norm=None),
                dict(in_channels=768, norm=None),
            ],
            loss=dict(type='CrossEntropyLoss', loss_weight=1.0),
        ),
    ),
)
