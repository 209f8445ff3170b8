# The detector of the demo, trained from scratch: FCOS on the last map of a ViT with 8
# blocks, width 96, patch 8; near, large objects. CPU, batch 16. No figure in the paper;
# measured: see README.md.
_base_ = [
    '../_base_/datasets/toy_objects_64x64.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/detection_runtime.py',
]
model = dict(
    type='FCOS',
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
        bgr_to_rgb=True,
        pad_size_divisor=8,
    ),
    backbone=dict(
        type='PlainViT',
        arch=dict(embed_dims=96, depth=8, num_heads=4),
        img_size=64,
        patch_size=8,
        layer_scale_init=None,
    ),
    neck=None,
    bbox_head=dict(
        type='FCOSHead',
        num_classes=1,
        in_channels=96,
        feat_channels=64,
        stacked_convs=1,
        strides=[8],
        regress_ranges=[(-1, 1e8)],
        center_sampling=True,
        norm_on_bbox=True,
        centerness_on_reg=True,
        loss_bbox=dict(type='GIoULoss', loss_weight=1.0),
    ),
    test_cfg=dict(
        nms_pre=100,
        score_thr=0.05,
        nms=dict(type='nms', iou_threshold=0.6),
        max_per_img=20,
    ),
)
scenes = dict(num_objects=(1, 2), feet=(0.5, 0.95), grey=True)
train_dataloader = dict(batch_size=16, dataset=scenes)
auto_scale_lr = dict(base_batch_size=16)
val_dataloader = dict(dataset=scenes)
test_dataloader = val_dataloader
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
optim_wrapper = dict(optimizer=dict(lr=1e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=30, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=30, end=300, by_epoch=False),
]
train_cfg = dict(max_iters=300, val_interval=300)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
