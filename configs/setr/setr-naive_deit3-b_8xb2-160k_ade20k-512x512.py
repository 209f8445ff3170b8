# DeiT3-B alone, a fast anchor: SETR-naive on ADE20K (SN-Netv2, table 1).
# 8 GPUs, batch 16. Paper: 48.6 mIoU at 108 GFLOPs. Ours: not yet run.
_base_ = ['../_base_/models/setr-naive_deit3-b.py', '../_base_/ade20k_160k.py']
