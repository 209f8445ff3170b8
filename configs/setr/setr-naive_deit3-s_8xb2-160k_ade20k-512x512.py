# DeiT3-S alone, a fast anchor: SETR-naive on ADE20K (SN-Netv2, table 1).
# 8 GPUs, batch 16. Paper: 45.5 mIoU at 32 GFLOPs. Ours: not yet run.
_base_ = ['../_base_/models/setr-naive_deit3-s.py', '../_base_/ade20k_160k.py']
