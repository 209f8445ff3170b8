# DeiT-Ti alone on ImageNet-1K, an anchor of SN-Netv1. Its published weights are trained
# already. 8 GPUs, batch 1024. Paper: 72.1 top-1 at 1.3 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/cls_vit_in1k.py',
    '../_base_/datasets/imagenet_224x224_deit.py',
    '../_base_/schedules/adamw_cosine_50e.py',
    '../_base_/cls_runtime.py',
]
checkpoint = 'checkpoints/deit_tiny_patch16_224-a1311bcf.pth'
model = dict(
    backbone=dict(
        arch='tiny',
        img_size=224,
        pos_embed_prefix=True,
        layer_scale_init=None,
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint=checkpoint),
    ),
    head=dict(
        anchor_heads=[
            dict(
                in_channels=192, init_cfg=dict(type='Pretrained', checkpoint=checkpoint)
            )
        ]
    ),
)
