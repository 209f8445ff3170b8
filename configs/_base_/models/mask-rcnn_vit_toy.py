# Mask R-CNN with the narrow pyramid and heads of the detection demo: one class, images
# of 64x64. The network is set by the configs that inherit it.
_base_ = ['./mask-rcnn_vit.py']
strides = [4, 8, 16, 32]
model = dict(
    data_preprocessor=dict(
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
        pad_size_divisor=32,
        batch_augments=[dict(type='BatchFixedSizePad', size=(64, 64), pad_mask=True)],
    ),
    neck=dict(out_channels=32, in_stride=8, strides=strides),
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
