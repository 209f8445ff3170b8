# DPT on DeiT3-S, for 416x544 crops.
_base_ = ['./dpt_vit.py']
model = dict(
    data_preprocessor=dict(size=(416, 544)),
    backbone=dict(
        arch='small',
        img_size=(416, 544),
        out_indices=(2, 5, 8, 11),
        init_cfg=dict(
            type='Pretrained', checkpoint='checkpoints/deit_3_small_224_21k.pth'
        ),
    ),
    decode_head=dict(in_channels=384, activation='relu'),
)
