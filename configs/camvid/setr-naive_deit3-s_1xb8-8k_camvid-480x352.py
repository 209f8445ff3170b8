# DeiT3-S alone on CamVid at full size, the fast anchor of the GPU variant.
# 1 GPU, batch 8. No figure in the paper. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_vit.py',
    '../_base_/camvid_480x352_8k.py',
    '../_base_/default_runtime.py',
]
model = dict(
    data_preprocessor=dict(size=(352, 480)),
    backbone=dict(
        arch='small',
        img_size=(352, 480),
        drop_path_rate=0.1,
        init_cfg=dict(
            type='Pretrained', checkpoint='checkpoints/deit_3_small_224_21k.pth'
        ),
    ),
    decode_head=dict(in_channels=384, num_classes=11),
)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
