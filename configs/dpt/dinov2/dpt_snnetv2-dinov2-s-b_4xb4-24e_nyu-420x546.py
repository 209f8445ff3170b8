# SN-Netv2 with DINOv2-S and DINOv2-B, registers included, 134 stitches, rank 4: DPT on
# NYUv2. 4 GPUs, batch 16. No paper stitches DINOv2; schedule and head are as for DeiT3
# in SN-Netv2, appendix C. Ours: not yet run.
_base_ = [
    '../../_base_/models/dpt_snnetv2.py',
    '../../_base_/datasets/nyu_416x544.py',
    '../../_base_/schedules/adamw_onecycle_24e.py',
    '../../_base_/stitched_runtime.py',
]
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg'], allow_failed_imports=False
)
# Crops of 30x39 patches of 14 pixels.
_base_.train_pipeline[5].crop_size = (420, 546)
train_dataloader = dict(dataset=dict(pipeline=_base_.train_pipeline))
anchor = dict(type='TimmAnchor', pretrained=True, img_size=(420, 546))
model = dict(
    data_preprocessor=dict(
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        size=(420, 546),
        test_cfg=dict(size_divisor=14),
    ),
    backbone=dict(
        anchors=[
            dict(model='vit_small_patch14_reg4_dinov2.lvd142m', **anchor),
            dict(model='vit_base_patch14_reg4_dinov2.lvd142m', **anchor),
        ],
        out_indices=(2, 5, 8, 11),
    ),
    decode_head=dict(in_channels=768),
)
test_cfg = dict(input_size=(490, 644))
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='RMSE', rule='less'))
