# SETR on DeiT3-B, 150 classes, as on DeiT3-L.
_base_ = ['./setr-naive_deit3-l.py']
auxiliary_head = dict(_base_.auxiliary_head, in_channels=768)
model = dict(
    backbone=dict(
        arch='base',
        out_indices=(4, 7, 9, 11),
        init_cfg=dict(checkpoint='checkpoints/deit_3_base_224_21k.pth'),
    ),
    decode_head=dict(in_channels=768),
    auxiliary_head=[dict(in_index=i, **auxiliary_head) for i in range(3)],
)
