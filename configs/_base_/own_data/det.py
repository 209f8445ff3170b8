# Template of `tools/new_project.py --task det`: the tool replaces the lines above the
# rule with its findings.
data_root = 'data/my_data'
train = dict(ann_file='train.json', data_prefix=dict(img='train/'))
val = dict(ann_file='val.json', data_prefix=dict(img='val/'))
classes = ['car', 'person']
palette = [(128, 64, 128), (0, 0, 142)]
with_mask = True
max_per_image = 100
anchor_scale = 8
size = (448, 448)
patch = 14
width = 384
backbone = dict(type='PlainViT', arch='small', patch_size=14, layer_scale_init=1.0)
mean = [123.675, 116.28, 103.53]
std = [58.395, 57.12, 57.375]
batch_size = 2
# ----------------------------------------------------------------------------------
default_scope = 'mmdet'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.detection_parts'], allow_failed_imports=False
)
# ViTDet's pyramid, made from the last map, and its heads. 64 channels suit small data
# on a CPU; the paper uses 256.
channels = 64
strides = [patch / 4, patch / 2, patch, patch * 2]
norm_cfg = dict(type='MapLayerNorm')
box_coder = dict(type='DeltaXYWHBBoxCoder', target_means=[0.0, 0.0, 0.0, 0.0])
assigner = dict(type='MaxIoUAssigner', match_low_quality=True, ignore_iof_thr=-1)
model = dict(
    type='MaskRCNN' if with_mask else 'FasterRCNN',
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=mean,
        std=std,
        bgr_to_rgb=True,
        pad_mask=with_mask,
        pad_size_divisor=size[0],
    ),
    backbone=dict(backbone, img_size=size),
    neck=dict(
        type='SimpleFeaturePyramid',
        in_channels=width,
        out_channels=channels,
        in_stride=patch,
        strides=strides,
        norm_cfg=norm_cfg,
    ),
    rpn_head=dict(
        type='RPNHead',
        in_channels=channels,
        feat_channels=channels,
        num_convs=2,
        anchor_generator=dict(
            type='AnchorGenerator',
            scales=[anchor_scale],
            ratios=[0.5, 1.0, 2.0],
            strides=strides,
        ),
        bbox_coder=dict(box_coder, target_stds=[1.0, 1.0, 1.0, 1.0]),
        loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=True, loss_weight=1.0),
        loss_bbox=dict(type='L1Loss', loss_weight=1.0),
    ),
    roi_head=dict(
        type='StandardRoIHead',
        bbox_roi_extractor=dict(
            type='SingleRoIExtractor',
            roi_layer=dict(type='RoIAlign', output_size=7, sampling_ratio=0),
            out_channels=channels,
            featmap_strides=strides,
            finest_scale=28,
        ),
        bbox_head=dict(
            type='Shared4Conv1FCBBoxHead',
            in_channels=channels,
            conv_out_channels=channels,
            fc_out_channels=4 * channels,
            roi_feat_size=7,
            num_classes=len(classes),
            norm_cfg=norm_cfg,
            bbox_coder=dict(box_coder, target_stds=[0.1, 0.1, 0.2, 0.2]),
            reg_class_agnostic=False,
            loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
            loss_bbox=dict(type='L1Loss', loss_weight=1.0),
        ),
    ),
    train_cfg=dict(
        rpn=dict(
            assigner=dict(assigner, pos_iou_thr=0.7, neg_iou_thr=0.3, min_pos_iou=0.3),
            sampler=dict(
                type='RandomSampler',
                num=256,
                pos_fraction=0.5,
                neg_pos_ub=-1,
                add_gt_as_proposals=False,
            ),
            allowed_border=-1,
            pos_weight=-1,
            debug=False,
        ),
        rpn_proposal=dict(
            nms_pre=2000,
            max_per_img=1000,
            nms=dict(type='nms', iou_threshold=0.7),
            min_bbox_size=0,
        ),
        rcnn=dict(
            assigner=dict(assigner, pos_iou_thr=0.5, neg_iou_thr=0.5, min_pos_iou=0.5),
            sampler=dict(
                type='RandomSampler',
                num=128,
                pos_fraction=0.25,
                neg_pos_ub=-1,
                add_gt_as_proposals=True,
            ),
            mask_size=28,
            pos_weight=-1,
            debug=False,
        ),
    ),
    test_cfg=dict(
        rpn=dict(
            nms_pre=1000,
            max_per_img=500,
            nms=dict(type='nms', iou_threshold=0.7),
            min_bbox_size=0,
        ),
        rcnn=dict(
            score_thr=0.05,
            nms=dict(type='nms', iou_threshold=0.5),
            max_per_img=max_per_image,
            mask_thr_binary=0.5,
        ),
    ),
)
if with_mask:
    model['roi_head'].update(
        mask_roi_extractor=dict(
            type='SingleRoIExtractor',
            roi_layer=dict(type='RoIAlign', output_size=14, sampling_ratio=0),
            out_channels=channels,
            featmap_strides=strides,
            finest_scale=28,
        ),
        mask_head=dict(
            type='FCNMaskHead',
            num_convs=4,
            in_channels=channels,
            conv_out_channels=channels,
            num_classes=len(classes),
            norm_cfg=norm_cfg,
            loss_mask=dict(type='CrossEntropyLoss', use_mask=True, loss_weight=1.0),
        ),
    )

dataset = dict(
    type='CocoDataset',
    data_root=data_root,
    metainfo=dict(classes=classes, palette=palette),
)
load_labels = dict(type='LoadAnnotations', with_bbox=True, with_mask=with_mask)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    load_labels,
    dict(type='RandomResize', scale=size, ratio_range=(0.8, 2.0), keep_ratio=True),
    dict(
        type='RandomCrop',
        crop_type='absolute',
        crop_size=size,
        recompute_bbox=with_mask,
        allow_negative_crop=True,
    ),
    dict(type='FilterAnnotations', min_gt_bbox_wh=(1e-2, 1e-2)),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=size, keep_ratio=True),
    # After the resize, because detections are compared at the file's resolution.
    load_labels,
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='SeededSampler', shuffle=True),
    dataset=dict(
        dataset,
        type='SeededDataset',
        of='CocoDataset',
        pipeline=train_pipeline,
        **train,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(dataset, test_mode=True, pipeline=test_pipeline, **val),
)
test_dataloader = val_dataloader
val_evaluator = dict(
    type='StitchCocoMetric',
    ann_file=val['ann_file'],
    metric=['bbox', 'segm'] if with_mask else ['bbox'],
)
test_evaluator = val_evaluator
visualizer = dict(
    type='DetLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')]
)
visualization = dict(type='DetVisualizationHook')
