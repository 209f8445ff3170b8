# DPT on DeiT3-B, for 416x544 crops, as on DeiT3-L.
_base_ = ['./dpt_deit3-l.py']
model = dict(
    backbone=dict(
        arch='base',
        out_indices=(2, 5, 8, 11),
        init_cfg=dict(checkpoint='checkpoints/deit_3_base_224_21k.pth'),
    ),
    decode_head=dict(in_channels=768),
)
