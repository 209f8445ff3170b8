# DPT on DeiT3-S, for 416x544 crops, as on DeiT3-L.
_base_ = ['./dpt_deit3-l.py']
model = dict(
    backbone=dict(
        arch='small',
        out_indices=(2, 5, 8, 11),
        init_cfg=dict(checkpoint='checkpoints/deit_3_small_224_21k.pth'),
    ),
    decode_head=dict(in_channels=384),
)
