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
                arch=arch,
                global_blocks=blocks,
                drop_path_rate=rate,
                init_cfg=dict(
                    type='Pretrained',
                    checkpoint=f'checkpoints/deit_3_{arch}_224_21k.pth',
                ),
                **anchor,
            )
            for arch, blocks, rate in (
                ('small', (2, 5, 8, 11), 0.1),
                ('large', (5, 11, 17, 23), 0.4),
            )
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
    )
)
