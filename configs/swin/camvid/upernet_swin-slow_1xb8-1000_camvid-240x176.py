# The slow anchor of the CamVid Swin pair with UPerNet, trained from scratch: 2-2-6-2
# blocks, width 36 in the first stage, windows of 4. One CPU core, batch 8. No figure in
# the paper; mIoU 38.69 measured.
_base_ = ['./upernet_swin-fast_1xb8-1000_camvid-240x176.py']
widths = [36, 72, 144, 288]
model = dict(
    backbone=dict(
        model_args=dict(embed_dim=36, depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24)),
        out_indices=(1, 3, 9, 11),
        drop_path_rate=0.1,
    ),
    neck=dict(in_channels=widths),
    decode_head=dict(in_channels=widths),
)
