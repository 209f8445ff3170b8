# DeiT3-B alone, a fast anchor: SETR-naive on COCO-Stuff-10K (SN-Netv2, table 1).
# 8 GPUs, batch 16. Paper: 42.7 mIoU at 108 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_deit3-l.py',
    '../_base_/setr_coco-stuff10k.py',
    '../_base_/default_runtime.py',
]
auxiliary_head = dict(_base_.auxiliary_head, in_channels=768, num_classes=171)
model = dict(
    backbone=dict(
        arch='base',
        out_indices=(4, 7, 9, 11),
        init_cfg=dict(checkpoint='checkpoints/deit_3_base_224_21k.pth'),
    ),
    decode_head=dict(in_channels=768, num_classes=171),
    auxiliary_head=[dict(in_index=i, **auxiliary_head) for i in range(3)],
)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'))
