# SN-Netv2 with DeiT3-B and DeiT3-L, 134 stitches: SETR-naive on ADE20K (table 1).
# 8 GPUs, batch 16. Paper: 48.5 - 52.2 mIoU at 110 - 363 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_snnetv2-deit3-b-l.py',
    '../_base_/datasets/ade20k_512x512.py',
    '../_base_/schedules/sgd_poly_160k.py',
    '../_base_/stitched_paper_runtime.py',
]
