# SN-Netv2 with DeiT3-B and DeiT3-L, 134 stitches: SETR on COCO-Stuff-10K (table 1).
# 8 GPUs, batch 16. Paper: 42.7 - 48.1 mIoU at 110 - 363 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_snnetv2-deit3-b-l_171.py',
    '../_base_/datasets/coco-stuff10k_512x512.py',
    '../_base_/schedules/sgd_poly_80k.py',
    '../_base_/stitched_runtime.py',
]
