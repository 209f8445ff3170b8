# EoMT on DINOv2 ViT-S/14 on nuclei: 200 queries pass through the last 3 of the 12
# blocks, which belong to the head. One CPU core, batch 2. No figure in the paper;
# measured: see docs/explanation/experiments_elastic.md.
_base_ = [
    '../_base_/datasets/nuclei_256x256.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/detection_runtime.py',
]
# A size that 14x14 patches divide: resize and crop in training, resize in tests.
image_size = (252, 252)
_base_.train_dataloader.dataset.pipeline[2].scale = image_size
_base_.train_dataloader.dataset.pipeline[3].crop_size = image_size
_base_.val_dataloader.dataset.pipeline[1].scale = image_size
_base_.test_dataloader.dataset.pipeline[1].scale = image_size
weights = dict(type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2.lvd142m')
vit = dict(
    type='PlainViT',
    img_size=image_size,
    patch_size=14,
    pos_embed_antialias=True,
    layer_scale_init=1.0,
)
model = dict(
    type='Mask2Former',
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_mask=True,
        pad_size_divisor=252,
    ),
    backbone=dict(
        arch=dict(embed_dims=384, depth=9, num_heads=6),
        with_cls=True,
        init_cfg=dict(blocks=(0, 9), **weights),
        **vit,
    ),
    panoptic_head=dict(
        type='EoMTHead',
        num_things_classes=1,
        num_queries=200,
        vit=dict(
            arch=dict(embed_dims=384, depth=3, num_heads=6),
            final_norm=True,
            init_cfg=dict(blocks=(9, 12), **weights),
            **vit,
        ),
    ),
    panoptic_fusion_head=dict(
        type='MaskFormerFusionHead',
        num_things_classes=1,
        num_stuff_classes=0,
        loss_panoptic=None,
    ),
    test_cfg=dict(panoptic_on=False, instance_on=True, max_per_image=200),
)
blocks = dict(lr_mult=0.03)
optim_wrapper = dict(
    optimizer=dict(lr=1e-3),
    paramwise_cfg=dict(
        custom_keys={'_delete_': True, 'backbone': blocks, 'panoptic_head.vit': blocks}
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-6, begin=50, end=300, by_epoch=False),
]
train_cfg = dict(max_iters=300, val_interval=300)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1, interval=100))
