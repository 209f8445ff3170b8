# SN-Netv2 with DeiT3-B and DeiT3-L, 134 stitches: SETR on COCO-Stuff-10K (table 1).
# 8 GPUs, batch 16. Paper: 42.7 - 48.1 mIoU at 110 - 363 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_snnetv2-deit3-b-l.py',
    '../_base_/datasets/coco-stuff10k_512x512.py',
    '../_base_/schedules/sgd_poly_80k.py',
    '../_base_/stitched_paper_runtime.py',
]
auxiliary_head = dict(_base_.auxiliary_head, num_classes=171)
model = dict(
    decode_head=dict(num_classes=171),
    auxiliary_head=[dict(in_index=i, **auxiliary_head) for i in range(3)],
)
