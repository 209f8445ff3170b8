# Ablation of ESTA on the tiny family: full stitching layers, otherwise as in ESTA
# (paper, figure 6a). One CPU core, batch 64; ours: measured, see ../small_scale.md.
_base_ = ['./esta-ti-s-b_1xb64-600_tinyimagenet20-64x64.py']
layer = dict(_delete_=True, type='StitchingLayer')
model = dict(model=dict(backbone=dict(stitching_layer=layer)))
