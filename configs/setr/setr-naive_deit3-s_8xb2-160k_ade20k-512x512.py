# DeiT3-S alone, a fast anchor: SETR-naive on ADE20K (SN-Netv2, table 1).
# 8 GPUs, batch 16. Paper: 45.5 mIoU at 32 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_deit3-l.py',
    '../_base_/setr_ade20k.py',
    '../_base_/default_runtime.py',
]
auxiliary_head = dict(_base_.auxiliary_head, in_channels=384)
model = dict(
    backbone=dict(
        arch='small',
        out_indices=(4, 7, 9, 11),
        init_cfg=dict(checkpoint='checkpoints/deit_3_small_224_21k.pth'),
    ),
    decode_head=dict(in_channels=384),
    auxiliary_head=[dict(in_index=i, **auxiliary_head) for i in range(3)],
)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'))
