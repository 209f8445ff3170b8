# ViTDet's Mask R-CNN, narrow and for images of some 64 pixels, on one plain ViT of
# patch 8; its width and depth, the pyramid's in_channels, and the number of classes are
# set by the configs that inherit it.
map_norm = dict(type='MapLayerNorm')
model = dict(
    type='MaskRCNN',
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
        bgr_to_rgb=True,
        pad_mask=True,
        pad_size_divisor=32,
    ),
    backbone=dict(type='PlainViT', patch_size=8, layer_scale_init=None),
    neck=dict(
        type='SimpleFeaturePyramid',
        in_channels=None,
        out_channels=32,
        in_stride=8,
        strides=(4, 8, 16, 32),
        norm_cfg=map_norm,
    ),
    rpn_head=dict(
        type='RPNHead',
        in_channels=32,
        feat_channels=32,
        num_convs=2,
        anchor_generator=dict(
            type='AnchorGenerator',
            scales=[2],
            ratios=[0.5, 1.0, 2.0],
            strides=[4, 8, 16, 32],
        ),
        bbox_coder=dict(type='DeltaXYWHBBoxCoder'),
        loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=True),
        loss_bbox=dict(type='L1Loss'),
    ),
    roi_head=dict(
        type='StandardRoIHead',
        bbox_roi_extractor=dict(
            type='SingleRoIExtractor',
            roi_layer=dict(type='RoIAlign', output_size=7, sampling_ratio=0),
            out_channels=32,
            featmap_strides=[4, 8, 16],
            finest_scale=14,
        ),
        bbox_head=dict(
            type='Shared4Conv1FCBBoxHead',
            in_channels=32,
            conv_out_channels=32,
            fc_out_channels=128,
            roi_feat_size=7,
            num_classes=None,
            norm_cfg=map_norm,
            bbox_coder=dict(
                type='DeltaXYWHBBoxCoder', target_stds=(0.1, 0.1, 0.2, 0.2)
            ),
            loss_cls=dict(type='CrossEntropyLoss'),
            loss_bbox=dict(type='L1Loss'),
        ),
        mask_roi_extractor=dict(
            type='SingleRoIExtractor',
            roi_layer=dict(type='RoIAlign', output_size=7, sampling_ratio=0),
            out_channels=32,
            featmap_strides=[4, 8, 16],
            finest_scale=14,
        ),
        mask_head=dict(
            type='FCNMaskHead',
            num_convs=2,
            in_channels=32,
            conv_out_channels=32,
            num_classes=None,
            norm_cfg=map_norm,
            loss_mask=dict(type='CrossEntropyLoss', use_mask=True),
        ),
    ),
    train_cfg=dict(
        rpn=dict(
            assigner=dict(
                type='MaxIoUAssigner',
                pos_iou_thr=0.6,
                neg_iou_thr=0.3,
                min_pos_iou=0.3,
            ),
            sampler=dict(
                type='RandomSampler',
                num=64,
                pos_fraction=0.5,
                add_gt_as_proposals=False,
            ),
            allowed_border=-1,
            pos_weight=-1,
        ),
        rpn_proposal=dict(
            nms_pre=200,
            max_per_img=50,
            nms=dict(type='nms', iou_threshold=0.7),
            min_bbox_size=0,
        ),
        rcnn=dict(
            assigner=dict(
                type='MaxIoUAssigner',
                pos_iou_thr=0.5,
                neg_iou_thr=0.5,
                min_pos_iou=0.5,
                match_low_quality=False,
            ),
            sampler=dict(type='RandomSampler', num=32, pos_fraction=0.5),
            mask_size=14,
            pos_weight=-1,
        ),
    ),
    test_cfg=dict(
        rpn=dict(
            nms_pre=100,
            max_per_img=30,
            nms=dict(type='nms', iou_threshold=0.7),
            min_bbox_size=0,
        ),
        rcnn=dict(
            score_thr=0.05,
            nms=dict(type='nms', iou_threshold=0.5),
            max_per_img=20,
            mask_thr_binary=0.5,
        ),
    ),
)
