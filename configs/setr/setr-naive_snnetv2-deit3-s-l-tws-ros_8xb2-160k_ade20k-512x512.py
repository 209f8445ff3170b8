# Table 2, third row: two-way stitching and ROS, stitching layers fully trained.
# 8 GPUs, batch 16. Paper: 43.7 - 50.7 mIoU at 34 - 363 GFLOPs. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-s-l_8xb2-160k_ade20k-512x512.py']
model = dict(backbone=dict(stitching_layer=dict(_delete_=True, type='StitchingLayer')))
