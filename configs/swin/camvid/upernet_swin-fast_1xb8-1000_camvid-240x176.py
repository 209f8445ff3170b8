# The fast anchor of the CamVid Swin pair with UPerNet, trained from scratch: 2-2-2-2
# blocks, width 24 in the first stage, windows of 4. One CPU core, batch 8. No figure in
# the paper; mIoU 39.33 measured.
_base_ = [
    '../../_base_/models/upernet_timm_stages.py',
    '../../_base_/datasets/camvid_240x176.py',
    '../../_base_/schedules/adamw_cosine.py',
    '../../_base_/default_runtime.py',
]
widths = [24, 48, 96, 192]
norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    data_preprocessor=dict(size=(176, 240)),
    backbone=dict(
        model='swin_tiny_patch4_window7_224',
        model_args=dict(
            embed_dim=24, depths=(2, 2, 2, 2), num_heads=(2, 4, 8, 16), window_size=4
        ),
        img_size=(176, 240),
        out_indices=(1, 3, 5, 7),
    ),
    neck=dict(in_channels=widths),
    decode_head=dict(
        in_channels=widths, channels=32, num_classes=11, norm_cfg=norm_cfg
    ),
)
optim_wrapper = dict(
    paramwise_cfg=dict(custom_keys=dict(relative_position_bias=dict(decay_mult=0)))
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=100, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=100, end=1000, by_epoch=False),
]
train_cfg = dict(max_iters=1000)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
