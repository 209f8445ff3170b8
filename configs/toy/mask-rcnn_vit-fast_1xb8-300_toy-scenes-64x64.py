# The fast anchor of the detection demo, trained from scratch: 4 blocks, width 32,
# patch 8. CPU, batch 8. No figure in the paper; measured: see README.md.
_base_ = [
    '../_base_/models/mask-rcnn_vit.py',
    '../_base_/datasets/toy_objects_64x64.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/detection_runtime.py',
]
strides = [4, 8, 16, 32]
model = dict(
    data_preprocessor=dict(
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
        pad_size_divisor=32,
        batch_augments=[dict(type='BatchFixedSizePad', size=(64, 64), pad_mask=True)],
    ),
    backbone=dict(
        arch=dict(embed_dims=32, depth=4, num_heads=2),
        img_size=64,
        patch_size=8,
        layer_scale_init=None,
    ),
    neck=dict(in_channels=32, out_channels=32, in_stride=8, strides=strides),
    rpn_head=dict(
        in_channels=32,
        feat_channels=32,
        anchor_generator=dict(scales=[2], strides=strides),
    ),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=32, finest_scale=14),
        bbox_head=dict(
            in_channels=32, conv_out_channels=32, fc_out_channels=128, num_classes=1
        ),
        mask_roi_extractor=dict(
            roi_layer=dict(output_size=7), out_channels=32, finest_scale=14
        ),
        mask_head=dict(
            num_convs=2, in_channels=32, conv_out_channels=32, num_classes=1
        ),
    ),
    train_cfg=dict(
        rpn_proposal=dict(nms_pre=200, max_per_img=50),
        rpn=dict(sampler=dict(num=64)),
        rcnn=dict(sampler=dict(num=32, pos_fraction=0.5), mask_size=14),
    ),
    test_cfg=dict(rpn=dict(nms_pre=100, max_per_img=30), rcnn=dict(max_per_img=20)),
)
optim_wrapper = dict(optimizer=dict(lr=2e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=30, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=30, end=300, by_epoch=False),
]
train_cfg = dict(max_iters=300, val_interval=300)
default_hooks = dict(
    checkpoint=dict(interval=300), visualization=dict(type='DetVisualizationHook')
)
