# Ablation of ESTA on the tiny family: low-rank updates without biases per stitch
# (paper, figure 6b). One CPU core, batch 64; measured: see ../small_scale.md.
_base_ = ['./esta-ti-s-b_1xb64-600_tinyimagenet20-64x64.py']
model = dict(model=dict(backbone=dict(plugins=None)))
