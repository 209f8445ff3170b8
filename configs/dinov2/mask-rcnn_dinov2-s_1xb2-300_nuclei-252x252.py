# DINOv2 ViT-S/14 fine-tuned to nuclei, the slow anchor of the pair; no windows. One
# CPU core, batch 2. No figure in the paper. Ours: not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_vit_nuclei.py',
    '../_base_/datasets/nuclei_256x256.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/detection_runtime.py',
]
input_size = (252, 252)
strides = [3.5, 7, 14, 28]
model = dict(
    data_preprocessor=dict(pad_size_divisor=252),
    backbone=dict(
        arch='small',
        img_size=input_size,
        patch_size=14,
        decomposed_rel_pos=False,
        layer_scale_init=1.0,
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2.lvd142m'
        ),
    ),
    neck=dict(in_channels=384, in_stride=14, strides=strides),
    rpn_head=dict(anchor_generator=dict(strides=strides)),
    roi_head=dict(
        bbox_roi_extractor=dict(featmap_strides=strides),
        mask_roi_extractor=dict(featmap_strides=strides),
    ),
)
_base_.train_dataloader.dataset.pipeline[2].scale = input_size
_base_.train_dataloader.dataset.pipeline[3].crop_size = input_size
_base_.val_dataloader.dataset.pipeline[1].scale = input_size
_base_.test_dataloader.dataset.pipeline[1].scale = input_size
optim_wrapper = dict(optimizer=dict(lr=1e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-6, begin=50, end=400, by_epoch=False),
]
train_cfg = dict(max_iters=400, val_interval=400)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1, interval=100))
