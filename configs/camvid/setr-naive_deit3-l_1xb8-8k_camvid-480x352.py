# DeiT3-L alone on CamVid at full size, the slow anchor of the GPU variant.
# 1 GPU, batch 8. No figure in the paper. Ours: not yet run.
_base_ = ['./setr-naive_deit3-s_1xb8-8k_camvid-480x352.py']
model = dict(
    backbone=dict(
        arch='large', init_cfg=dict(checkpoint='checkpoints/deit_3_large_224_21k.pth')
    ),
    decode_head=dict(in_channels=1024),
)
