# SN-Netv2 with DeiT3-S and DeiT3-L on CamVid at full size: 134 stitches.
# 1 GPU, batch 8. No figure in the paper. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_snnetv2.py',
    '../_base_/datasets/camvid_480x352.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/stitched_runtime.py',
]
anchor = dict(type='PlainViT', img_size=(352, 480), drop_path_rate=0.1)
model = dict(
    data_preprocessor=dict(size=(352, 480)),
    backbone=dict(
        anchors=[
            dict(
                arch=arch,
                init_cfg=dict(
                    type='Pretrained',
                    checkpoint=f'checkpoints/deit_3_{arch}_224_21k.pth',
                ),
                **anchor,
            )
            for arch in ('small', 'large')
        ],
    ),
    decode_head=dict(in_channels=1024, num_classes=11),
)
optim_wrapper = dict(optimizer=dict(lr=6e-5))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=500, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=0, begin=500, end=8000, by_epoch=False),
]
train_cfg = dict(max_iters=8000, val_interval=2000)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
