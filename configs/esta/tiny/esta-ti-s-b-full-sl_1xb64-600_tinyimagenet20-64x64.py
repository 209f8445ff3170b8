# Ablation of ESTA on the tiny family: stitching layers fully trained, all else as in
# ESTA (paper, figure 6a). One CPU core, batch 64; ours: measured, see ../README.md.
_base_ = ['./esta-ti-s-b_1xb64-600_tinyimagenet20-64x64.py']
layer = dict(_delete_=True, type='StitchingLayer')
model = dict(model=dict(backbone=dict(stitching_layer=layer)))
