# Mask R-CNN on Swin-Ti, as in mmdetection.
_base_ = ['./mask-rcnn_vit.py']
widths = [96, 192, 384, 768]
model = dict(
    data_preprocessor=dict(pad_size_divisor=32),
    backbone=dict(
        _delete_=True,
        type='TimmStageAnchor',
        model='swin_tiny_patch4_window7_224',
        # Any size whose last map is larger than a window.
        img_size=512,
        out_indices=(1, 3, 9, 11),
        drop_path_rate=0.2,
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://swin_tiny_patch4_window7_224.ms_in1k'
        ),
    ),
    neck=[
        dict(type='NormPerMap', in_channels=widths),
        dict(type='FPN', in_channels=widths, out_channels=256, num_outs=5),
    ],
    rpn_head=dict(num_convs=1),
    roi_head=dict(
        bbox_head=dict(
            _delete_=True,
            type='Shared2FCBBoxHead',
            in_channels=256,
            fc_out_channels=1024,
            roi_feat_size=7,
            num_classes=80,
            bbox_coder=dict(
                type='DeltaXYWHBBoxCoder',
                target_means=[0.0, 0.0, 0.0, 0.0],
                target_stds=[0.1, 0.1, 0.2, 0.2],
            ),
            reg_class_agnostic=False,
            loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
            loss_bbox=dict(type='L1Loss', loss_weight=1.0),
        ),
        mask_head=dict(norm_cfg=None),
    ),
)
