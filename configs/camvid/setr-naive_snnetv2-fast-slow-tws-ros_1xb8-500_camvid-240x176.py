# Ablation on the CamVid pair: two-way stitching and ROS, stitching layers fully trained
# (paper, table 2, on ADE20K). One CPU core, batch 8; measured: README.md.
_base_ = ['./setr-naive_snnetv2-fast-slow_1xb8-500_camvid-240x176.py']
model = dict(backbone=dict(stitching_layer=dict(_delete_=True, type='StitchingLayer')))
