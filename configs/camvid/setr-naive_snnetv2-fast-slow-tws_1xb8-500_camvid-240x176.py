# Ablation on the CamVid pair: two-way stitching, uniform sampling, layers fully trained
# (paper, table 2, on ADE20K). One CPU core, batch 8; measured: README.md.
_base_ = ['./setr-naive_snnetv2-fast-slow-tws-ros_1xb8-500_camvid-240x176.py']
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler'))
)
