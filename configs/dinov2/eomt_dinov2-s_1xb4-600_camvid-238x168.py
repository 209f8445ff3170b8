# EoMT on DINOv2 ViT-S/14 on CamVid: 50 queries pass through the last 3 of the 12
# blocks, which belong to the head. One CPU core, batch 4. No figure in the paper;
# measured: see docs/explanation/experiments_elastic.md.
_base_ = [
    '../_base_/models/setr-naive_vit.py',
    '../_base_/datasets/camvid_238x168.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg.eomt'],
    allow_failed_imports=False,
)
weights = dict(type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2.lvd142m')
vit = dict(
    type='PlainViT',
    img_size=_base_.crop_size,
    patch_size=14,
    pos_embed_antialias=True,
    layer_scale_init=1.0,
)
model = dict(
    data_preprocessor=dict(size=_base_.crop_size),
    backbone=dict(
        arch=dict(embed_dims=384, depth=9, num_heads=6),
        with_cls=True,
        init_cfg=dict(blocks=(0, 9), **weights),
        **vit,
    ),
    decode_head=dict(
        _delete_=True,
        type='EoMTSegHead',
        num_classes=11,
        num_queries=50,
        vit=dict(
            arch=dict(embed_dims=384, depth=3, num_heads=6),
            final_norm=True,
            init_cfg=dict(blocks=(9, 12), **weights),
            **vit,
        ),
    ),
)
# Queries and their heads learn from scratch; the blocks have the low learning rate of
# SETR's blocks.
blocks = dict(lr_mult=0.03)
optim_wrapper = dict(
    optimizer=dict(lr=1e-3),
    paramwise_cfg=dict(
        custom_keys={'_delete_': True, 'backbone': blocks, 'decode_head.vit': blocks}
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-6, begin=50, end=600, by_epoch=False),
]
train_cfg = dict(max_iters=600, val_interval=600)
default_hooks = dict(checkpoint=dict(interval=100, max_keep_ckpts=1))
