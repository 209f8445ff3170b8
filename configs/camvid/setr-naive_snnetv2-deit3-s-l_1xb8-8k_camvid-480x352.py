# SN-Netv2 with DeiT3-S and DeiT3-L on CamVid at full size: 134 stitches.
# 1 GPU, batch 8. No figure in the paper. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_snnetv2.py',
    '../_base_/camvid_480x352_8k.py',
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
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
