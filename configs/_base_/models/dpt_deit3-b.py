# DPT on DeiT3-B, for 416x544 crops.
_base_ = ['./dpt_vit.py']
model = dict(
    data_preprocessor=dict(size=(416, 544)),
    backbone=dict(
        arch='base',
        img_size=(416, 544),
        out_indices=(2, 5, 8, 11),
        init_cfg=dict(
            type='Pretrained', checkpoint='checkpoints/deit_3_base_224_21k.pth'
        ),
    ),
    decode_head=dict(in_channels=768, activation='relu'),
)
