# DPT on SN-Netv2 of DeiT3-B and DeiT3-L, for 416x544 crops.
_base_ = ['./dpt_snnetv2.py']
anchor = dict(type='PlainViT', img_size=(416, 544))
model = dict(
    data_preprocessor=dict(size=(416, 544)),
    backbone=dict(
        anchors=[
            dict(
                arch='base',
                init_cfg=dict(
                    type='Pretrained', checkpoint='checkpoints/deit_3_base_224_21k.pth'
                ),
                **anchor,
            ),
            dict(
                arch='large',
                init_cfg=dict(
                    type='Pretrained', checkpoint='checkpoints/deit_3_large_224_21k.pth'
                ),
                **anchor,
            ),
        ],
        out_indices=(4, 11, 17, 23),
    ),
    decode_head=dict(in_channels=1024),
)
