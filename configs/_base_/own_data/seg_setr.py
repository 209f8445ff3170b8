# SETR's naive head on the whole DINOv2 ViT-S/14, all of whose blocks can be reduced;
# otherwise as seg.py.
_base_ = ['./seg.py']
model = dict(
    backbone=dict(
        _delete_=True,
        type='TimmAnchor',
        model='vit_small_patch14_dinov2',
        img_size=_base_.size,
        final_norm=False,
        init_cfg=dict(type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2'),
    ),
    decode_head=dict(
        _delete_=True,
        type='SETRUPHead',
        in_channels=384,
        in_index=-1,
        channels=128,
        num_classes=len(_base_.classes),
        num_convs=1,
        up_scale=4,
        kernel_size=1,
        dropout_ratio=0,
        norm_cfg=dict(type='BN', requires_grad=True),
        align_corners=False,
    ),
)
