# ViTDet's Mask R-CNN on DeiT3-S, images of 1024x1024.
_base_ = ['./mask-rcnn_vitdet.py']
model = dict(
    backbone=dict(
        arch='small',
        global_blocks=(2, 5, 8, 11),
        drop_path_rate=0.1,
        init_cfg=dict(
            type='Pretrained', checkpoint='checkpoints/deit_3_small_224_21k.pth'
        ),
    ),
    neck=dict(in_channels=384),
)
