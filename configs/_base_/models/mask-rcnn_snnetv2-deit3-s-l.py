# ViTDet's Mask R-CNN on SN-Netv2 of DeiT3-S and DeiT3-L, images of 1024x1024.
_base_ = ['./mask-rcnn_deit3-l.py']
anchor = dict(
    type='PlainViT',
    img_size=1024,
    cls_token=False,
    window_size=14,
    decomposed_rel_pos=True,
)
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[
            dict(
                arch='small',
                global_blocks=(2, 5, 8, 11),
                drop_path_rate=0.1,
                init_cfg=dict(
                    type='Pretrained', checkpoint='checkpoints/deit_3_small_224_21k.pth'
                ),
                **anchor,
            ),
            dict(
                arch='large',
                global_blocks=(5, 11, 17, 23),
                drop_path_rate=0.4,
                init_cfg=dict(
                    type='Pretrained', checkpoint='checkpoints/deit_3_large_224_21k.pth'
                ),
                **anchor,
            ),
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
    ),
)
