# DINO, the detector, with narrow transformers on a plain ViT of 8 blocks, width 96,
# patch 8, trained from scratch. CPU, batch 16. No figure in the paper; measured: see
# docs/explanation/experiments_elastic.md.
_base_ = [
    '../_base_/models/dino_vit.py',
    '../_base_/datasets/toy_objects_64x64.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/detection_runtime.py',
]
strides = [4, 8, 16, 32]
channels = 64
attention = dict(embed_dims=channels)
ffn = dict(embed_dims=channels, feedforward_channels=256)
model = dict(
    num_queries=60,
    data_preprocessor=dict(mean=[127.5] * 3, std=[127.5] * 3, pad_size_divisor=32),
    backbone=dict(
        arch=dict(embed_dims=96, depth=8, num_heads=4), img_size=64, patch_size=8
    ),
    neck=dict(in_channels=96, out_channels=channels, in_stride=8, strides=strides),
    encoder=dict(num_layers=1, layer_cfg=dict(self_attn_cfg=attention, ffn_cfg=ffn)),
    decoder=dict(
        num_layers=2,
        layer_cfg=dict(self_attn_cfg=attention, cross_attn_cfg=attention, ffn_cfg=ffn),
    ),
    positional_encoding=dict(num_feats=channels // 2),
    bbox_head=dict(embed_dims=channels, num_classes=1),
    dn_cfg=dict(group_cfg=dict(num_dn_queries=40)),
    test_cfg=dict(max_per_img=60),
)
train_dataloader = dict(batch_size=16)
auto_scale_lr = dict(base_batch_size=16)
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=50, end=1500, by_epoch=False),
]
train_cfg = dict(max_iters=1500, val_interval=500)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1, interval=500))
