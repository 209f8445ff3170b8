# Ablation of ESTA on the CamVid pair: low-rank updates without biases per stitch
# (paper, figure 6b, on FGVC). One CPU core, batch 8; ours: measured, see ../README.md.
_base_ = ['./esta-setr-naive-fast-slow_1xb8-120_camvid-240x176.py']
model = dict(model=dict(backbone=dict(plugins=None)))
