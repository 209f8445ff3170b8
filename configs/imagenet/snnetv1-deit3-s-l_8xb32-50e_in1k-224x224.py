# Figure 11 (a): SN-Netv1 of DeiT3-S and DeiT3-L on ImageNet-1K, 13 stitches.
# 8 GPUs, batch 256. Paper: curve only. Ours: not yet run.
_base_ = ['./snnetv2-deit3-s-l-tws_8xb32-50e_in1k-224x224.py']
model = dict(backbone=dict(type='SNNetv1'))
