# DeiT3-S alone on ImageNet-1K, an anchor of SN-Netv2. Its published weights are
# finetuned already. 8 GPUs, batch 256. DeiT3's paper: 83.1 top-1 at 4.6 GFLOPs. Ours:
# not yet run.
_base_ = [
    '../_base_/models/cls_vit_in1k.py',
    '../_base_/datasets/imagenet_224x224_deit3.py',
    '../_base_/schedules/lamb_cosine_50e.py',
    '../_base_/cls_runtime.py',
]
checkpoint = 'checkpoints/deit_3_small_224_21k.pth'
model = dict(
    backbone=dict(
        arch='small',
        img_size=224,
        drop_path_rate=0.05,  # of all blocks, as in DeiT3
        drop_path_uniform=True,
        init_cfg=dict(type='Pretrained', checkpoint=checkpoint),
    ),
    head=dict(
        anchor_heads=[
            dict(
                in_channels=384, init_cfg=dict(type='Pretrained', checkpoint=checkpoint)
            )
        ]
    ),
    # As in DeiT3's finetuning.
    train_cfg=dict(augments=[dict(type='CutMix', alpha=1.0)]),
)
