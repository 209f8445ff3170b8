# Ablation of ESTA on the CamVid pair: uniform sampling (paper, figure 6c, on FGVC). One
# CPU core, batch 8; ours: measured, see ../README.md.
_base_ = ['./esta-setr-naive-fast-slow_1xb8-120_camvid-240x176.py']
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='SandwichSampler', anchors='slowest')
    )
)
