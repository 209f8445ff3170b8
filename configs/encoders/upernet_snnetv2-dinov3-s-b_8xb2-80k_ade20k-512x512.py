# SN-Netv2 with DINOv3-S and DINOv3-B, 134 stitches: UPerNet on ADE20K, with the pyramid
# of mmsegmentation's BEiT and MAE. 8 GPUs, batch 16. No paper stitches DINOv3; the
# settings are ours. Ours: not yet run. Weights: README.md.
_base_ = [
    '../_base_/models/upernet_timm_stages.py',
    '../_base_/datasets/ade20k_512x512.py',
    '../_base_/schedules/adamw_poly_80k.py',
    '../_base_/stitched_runtime.py',
]
anchor = dict(type='TimmAnchor', pretrained=True, img_size=512, drop_path_rate=0.1)
norm_cfg = dict(type='SyncBN', requires_grad=True)
model = dict(
    data_preprocessor=dict(size=(512, 512)),
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[
            dict(model='vit_small_patch16_dinov3.lvd1689m', **anchor),
            dict(model='vit_base_patch16_dinov3.lvd1689m', **anchor),
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
        out_indices=(2, 5, 8, 11),
    ),
    neck=dict(
        _delete_=True,
        type='Feature2Pyramid',
        embed_dim=768,
        rescales=[4, 2, 1, 0.5],
        norm_cfg=norm_cfg,
    ),
    decode_head=dict(in_channels=[768] * 4, num_classes=150),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'),
    # Groups of the default width: 10 GFLOPs would join the fast anchor with 12 others.
    stitch_sampling=dict(sampler=dict(step=None)),
)
