# Ablation on a pair with patches of 16 pixels, all of SN-Netv2: two-way stitching, ROS
# and low-rank layers (paper, table 2, on ADE20K), 71 draws per stitch in the mean. One
# CPU core, batch 8; measured: README.md.
_base_ = ['./setr-naive_snnetv2-fast-slow_1xb8-1500_camvid-240x176.py']
checkpoint = 'work_dirs/setr-naive_vit-{}-p16_1xb8-1500_camvid-240x176/iter_1500.pth'
fast, slow = _base_.model.backbone.anchors
fast.init_cfg.checkpoint = checkpoint.format('fast')
slow.init_cfg.checkpoint = checkpoint.format('slow')
fast.patch_size = slow.patch_size = 16
model = dict(
    backbone=dict(anchors=[fast, slow]),
    decode_head=dict(init_cfg=dict(checkpoint=checkpoint.format('slow'))),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=50, end=2286, by_epoch=False),
]
train_cfg = dict(max_iters=2286, val_interval=2286)
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(step=0.05e9)),
    # As in the paper, all stitches share batch norm statistics.
    stitch_statistics=dict(num_images=0),
)
