# Figure 11 (c): two-way stitching and ROS, stitching layers fully trained.
# 8 GPUs, batch 256. Paper: curve only. Ours: not yet run.
_base_ = ['./snnetv2-deit3-s-l_8xb32-50e_in1k-224x224.py']
model = dict(backbone=dict(stitching_layer=dict(_delete_=True, type='StitchingLayer')))
