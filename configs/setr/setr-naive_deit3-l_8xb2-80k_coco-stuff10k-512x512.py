# DeiT3-L alone, the slow anchor: SETR-naive on COCO-Stuff-10K (SN-Netv2, table 1).
# 8 GPUs, batch 16. Paper: 47.8 mIoU at 363 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_deit3-l.py',
    '../_base_/setr_coco-stuff10k.py',
    '../_base_/default_runtime.py',
]
auxiliary_head = dict(_base_.auxiliary_head, num_classes=171)
model = dict(
    decode_head=dict(num_classes=171),
    auxiliary_head=[dict(in_index=i, **auxiliary_head) for i in range(3)],
)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'))
