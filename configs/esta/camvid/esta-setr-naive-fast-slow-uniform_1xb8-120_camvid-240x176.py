# Ablation of ESTA on the CamVid pair: uniform sampling (paper, figure 6c, on FGVC). One
# CPU core, batch 8; ours: measured, see ../README.md.
_base_ = ['./esta-setr-naive-fast-slow_1xb8-120_camvid-240x176.py']
_base_.custom_hooks[1].sampler = dict(type='SandwichSampler', anchors='slowest')
