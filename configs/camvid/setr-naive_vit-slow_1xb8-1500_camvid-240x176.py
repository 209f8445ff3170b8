# The slow anchor of the CamVid pair, trained from scratch: 12 blocks, width 128,
# patch 8. One CPU core, batch 8. No figure in the paper; measured: see README.md.
_base_ = ['./setr-naive_vit-fast_1xb8-1500_camvid-240x176.py']
model = dict(
    backbone=dict(arch=dict(embed_dims=128, depth=12, num_heads=4), drop_path_rate=0.1),
    decode_head=dict(in_channels=128),
)
