# SN-Netv2 with DINOv3-S and DINOv3-B: a linear head on ADE20K. 8 GPUs, batch 16. No
# paper stitches DINOv3; the settings are ours. Ours: not yet run. The weights are gated
# and under a licence of their own: accept it on Hugging Face and log in there, or
# remove pretrained=True and set the init_cfg of each anchor to the file.
_base_ = [
    '../../_base_/models/linear_snnetv2.py',
    '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/adamw_poly_80k.py',
    '../../_base_/stitched_runtime.py',
]
anchor = dict(type='TimmAnchor', pretrained=True, img_size=512, drop_path_rate=0.1)
model = dict(
    data_preprocessor=dict(size=(512, 512)),
    backbone=dict(
        anchors=[
            dict(model='vit_small_patch16_dinov3.lvd1689m', **anchor),
            dict(model='vit_base_patch16_dinov3.lvd1689m', **anchor),
        ]
    ),
    decode_head=dict(in_channels=768, channels=768, num_classes=150),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'),
    # Groups of the default width: 10 GFLOPs would join the fast anchor with 12 others.
    stitch_sampling=dict(sampler=dict(step=None)),
)
