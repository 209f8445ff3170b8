# mmdetection's Mask R-CNN with a feature pyramid on one network of timm that has
# stages; the network, the norms of its maps and their widths are set by the configs
# that inherit it.
_base_ = ['./mask-rcnn_vit.py']
model = dict(
    data_preprocessor=dict(pad_size_divisor=32),
    backbone=dict(_delete_=True, type='TimmStageAnchor'),
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
