# Mask R-CNN with a narrow pyramid and narrow heads for nuclei: one class, many small
# objects, images of 256x256. The network is set by the configs that inherit it.
_base_ = ['./mask-rcnn_vit.py']
strides = [4, 8, 16, 32]
model = dict(
    data_preprocessor=dict(pad_size_divisor=256),
    neck=dict(out_channels=64, in_stride=8, strides=strides),
    rpn_head=dict(
        in_channels=64,
        feat_channels=64,
        anchor_generator=dict(scales=[3], strides=strides),
    ),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=64, finest_scale=28),
        bbox_head=dict(
            in_channels=64, conv_out_channels=64, fc_out_channels=256, num_classes=1
        ),
        mask_roi_extractor=dict(out_channels=64, finest_scale=28),
        mask_head=dict(in_channels=64, conv_out_channels=64, num_classes=1),
    ),
    train_cfg=dict(rcnn=dict(sampler=dict(num=128))),
    test_cfg=dict(rpn=dict(max_per_img=500), rcnn=dict(max_per_img=400)),
)
