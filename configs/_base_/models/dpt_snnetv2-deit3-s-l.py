# DPT on SN-Netv2 of DeiT3-S and DeiT3-L, for 416x544 crops, position embeddings as on
# DeiT3-L.
_base_ = ['./dpt_vit.py']
anchor = dict(type='PlainViT', img_size=224, pos_embed_antialias=False)
model = dict(
    data_preprocessor=dict(size=(416, 544)),
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[
            dict(
                arch=arch,
                init_cfg=dict(
                    type='Pretrained',
                    checkpoint=f'checkpoints/deit_3_{arch}_224_21k.pth',
                ),
                **anchor,
            )
            for arch in ('small', 'large')
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=4),
        with_cls=True,
        out_indices=(4, 11, 17, 23),
    ),
    decode_head=dict(in_channels=1024, activation='relu'),
)
