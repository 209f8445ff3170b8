# ViTDet's Mask R-CNN on a stitched backbone; the anchors are set by the configs that
# inherit it.
_base_ = ['./mask-rcnn_vit.py']
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[dict(type='PlainViT'), dict(type='PlainViT')],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
    ),
)
