# SN-Netv1 with DeiT3-S and DeiT3-L, 13 stitches: SETR-naive on ADE20K (table 2).
# 8 GPUs, batch 16. Paper: 40.4 - 51.6 mIoU at 34 - 363 GFLOPs. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-s-l-tws_8xb2-160k_ade20k-512x512.py']
model = dict(backbone=dict(type='SNNetv1'))
