# DPT's depth model on a stitched backbone; the anchors are set by the configs that
# inherit it.
_base_ = ['./dpt_vit.py']
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[dict(type='PlainViT'), dict(type='PlainViT')],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=4),
        with_cls=True,
    )
)
