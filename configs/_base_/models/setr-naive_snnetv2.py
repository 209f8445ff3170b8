# SETR with the naive decoder on a stitched backbone; anchors and classes are set by the
# configs that inherit it.
_base_ = ['./setr-naive_vit.py']
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[dict(type='PlainViT'), dict(type='PlainViT')],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
    )
)
