# Figure 11 (c) of the paper on the tiny family: two-way stitching and ROS, stitching
# layers fully trained. One CPU core, batch 64; measured: see ../small_scale.md.
_base_ = ['./snnetv2-ti-b_1xb64-600_tinyimagenet20-64x64.py']
model = dict(backbone=dict(stitching_layer=dict(_delete_=True, type='StitchingLayer')))
