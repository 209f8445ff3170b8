# SN-Netv2 with DINOv2-B and DINOv2-L, registers included, 134 stitches, rank 4: DPT on
# NYUv2. 4 GPUs, batch 16. No paper stitches DINOv2; schedule and head are as for DeiT3
# in SN-Netv2, appendix C. Ours: not yet run.
_base_ = [
    '../../_base_/models/dpt_snnetv2-dinov2.py',
    '../../_base_/datasets/nyu_420x546.py',
    '../../_base_/schedules/adamw_onecycle_24e.py',
    '../../_base_/stitched_depth_runtime.py',
]
model = dict(
    backbone=dict(
        anchors=[
            dict(model='vit_base_patch14_reg4_dinov2.lvd142m', **_base_.anchor),
            dict(model='vit_large_patch14_reg4_dinov2.lvd142m', **_base_.anchor),
        ],
        out_indices=(4, 11, 17, 23),
    ),
    decode_head=dict(in_channels=1024),
)
test_cfg = dict(input_size=(490, 644))
