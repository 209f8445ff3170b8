# SN-Netv2 with DINOv2-S and DINOv2-B, registers included: a linear head on ADE20K.
# 8 GPUs, batch 16. No paper stitches DINOv2; the settings are ours. Ours: not yet run.
_base_ = [
    '../../_base_/models/linear_snnetv2.py',
    '../../_base_/dinov2_ade20k.py',
    '../../_base_/stitched_runtime.py',
]
anchor = dict(type='TimmAnchor', pretrained=True, img_size=518, drop_path_rate=0.1)
model = dict(
    data_preprocessor=dict(size=(518, 518)),
    backbone=dict(
        anchors=[
            dict(model='vit_small_patch14_reg4_dinov2.lvd142m', **anchor),
            dict(model='vit_base_patch14_reg4_dinov2.lvd142m', **anchor),
        ]
    ),
    decode_head=dict(in_channels=768, channels=768, num_classes=150),
    test_cfg=dict(mode='slide', crop_size=(518, 518), stride=(345, 345)),
)
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'),
    # Groups of the default width: 10 GFLOPs would join the fast anchor with 12 others.
    stitch_sampling=dict(sampler=dict(step=None)),
)
