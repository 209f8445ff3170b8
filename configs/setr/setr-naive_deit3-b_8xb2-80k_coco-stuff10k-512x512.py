# DeiT3-B alone, a fast anchor: SETR-naive on COCO-Stuff-10K (SN-Netv2, table 1).
# 8 GPUs, batch 16. Paper: 42.7 mIoU at 108 GFLOPs. Ours: not yet run.
_base_ = ['../_base_/models/setr-naive_deit3-b.py', '../_base_/coco-stuff10k_80k.py']
auxiliary_head = dict(_base_.auxiliary_head, num_classes=171)
model = dict(
    decode_head=dict(num_classes=171),
    auxiliary_head=[dict(in_index=i, **auxiliary_head) for i in range(3)],
)
