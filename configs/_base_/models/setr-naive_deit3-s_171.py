# SETR on DeiT3-S as for ADE20K, with the 171 classes of COCO-Stuff.
_base_ = ['./setr-naive_deit3-s.py']
auxiliary_head = dict(
    type='SETRUPHead',
    in_channels=384,
    channels=256,
    num_classes=171,
    dropout_ratio=0,
    norm_cfg=dict(type='SyncBN', requires_grad=True),
    num_convs=2,
    kernel_size=1,
    align_corners=False,
    loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=0.4),
)
model = dict(
    decode_head=dict(num_classes=171),
    auxiliary_head=[dict(in_index=i, **auxiliary_head) for i in range(3)],
)
