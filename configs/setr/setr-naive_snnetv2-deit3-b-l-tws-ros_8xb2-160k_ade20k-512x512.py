# Figure 10 (c): two-way stitching and ROS with DeiT3-B and DeiT3-L, full stitching
# layers. 8 GPUs, batch 16. Paper: curve only. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-b-l_8xb2-160k_ade20k-512x512.py']
model = dict(backbone=dict(stitching_layer=dict(_delete_=True, type='StitchingLayer')))
