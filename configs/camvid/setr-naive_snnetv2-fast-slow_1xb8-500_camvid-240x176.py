# Ablation on the CamVid pair, all of SN-Netv2: two-way stitching, ROS and low-rank
# layers (paper, table 2, on ADE20K). One CPU core, batch 8; measured: README.md.
_base_ = ['./setr-naive_snnetv2-fast-slow_1xb8-1500_camvid-240x176.py']
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=50, end=500, by_epoch=False),
]
train_cfg = dict(max_iters=500)
# As in the paper, all stitches share batch norm statistics.
default_hooks = dict(stitch_statistics=dict(num_images=0))
