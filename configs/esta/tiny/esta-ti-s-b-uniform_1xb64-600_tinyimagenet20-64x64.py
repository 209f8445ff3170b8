# Ablation of ESTA on the tiny family: uniform sampling (paper, figure 6c). One CPU
# core, batch 64; measured: see ../README.md.
_base_ = ['./esta-ti-s-b_1xb64-600_tinyimagenet20-64x64.py']
_base_.custom_hooks[1].sampler = dict(type='SandwichSampler', anchors='slowest')
