# EoMT on DINOv3-S on ADE20K: 100 queries pass through the last 4 of the 12 blocks,
# which belong to the head, with the cls token and the registers. 8 GPUs, batch 16. No
# figure in the paper; the settings are ours. Ours: not yet run. Weights: README.md.
_base_ = [
    '../_base_/models/setr-naive_vit.py',
    '../_base_/datasets/ade20k_512x512.py',
    '../_base_/schedules/adamw_poly_80k.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg.eomt'],
    allow_failed_imports=False,
)
model_name = 'vit_small_patch16_dinov3.lvd1689m'
weights = dict(type='Pretrained', checkpoint=f'timm://{model_name}')
vit = dict(type='TimmAnchor', model=model_name, img_size=512)
model = dict(
    data_preprocessor=dict(size=(512, 512)),
    backbone=dict(
        _delete_=True,
        model_args=dict(depth=8),
        final_norm=False,
        out='end',
        init_cfg=dict(blocks=(0, 8), **weights),
        **vit,
    ),
    decode_head=dict(
        _delete_=True,
        type='EoMTSegHead',
        num_classes=150,
        num_queries=100,
        vit=dict(
            model_args=dict(depth=4),
            init_cfg=dict(blocks=(8, 12), **weights),
            **vit,
        ),
    ),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'))
