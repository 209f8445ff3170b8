# The slow anchor of the tiny Swin pair, trained from scratch: 2-2-6 blocks, width 36 in
# the first stage, windows of 4. One CPU core, batch 64. No figure in the paper;
# top-1 34.0 measured.
_base_ = ['./swin-fast_1xb64-1000_tinyimagenet20-64x64.py']
model = dict(
    backbone=dict(
        model_args=dict(embed_dim=36, depths=(2, 2, 6), num_heads=(3, 6, 12)),
        drop_path_rate=0.1,
    ),
    head=dict(anchor_heads=[dict(in_channels=144, pooling='norm-mean', norm_eps=1e-5)]),
)
