# ESTA on a fine-grained data set at 224x224: AugReg-Ti, S and B, 71 stitches, one GPU,
# batch 64. Data, classes, iterations and the sampler are set by the configs that
# inherit this. The optimizer is that of appendix A: AdamW with a weight decay of 1e-4
# on everything, ten of a hundred epochs of warm-up, a cosine. The largest anchor is
# trained in every iteration and teaches by hard labels (sections 4 and 5.1).
_base_ = ['./datasets/fgvc_224x224.py']
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
optim_wrapper = dict(
    type='OptimWrapper',
    # 1e-3 of the paper's grid of 1e-4 to 2e-3, times batch / 256.
    optimizer=dict(type='AdamW', lr=2.5e-4, betas=(0.9, 0.999), weight_decay=1e-4),
)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=None, val_interval=None)
