# ViTDet's Mask R-CNN on DeiT3-B, images of 1024x1024.
_base_ = ['./mask-rcnn_vitdet.py']
model = dict(
    backbone=dict(
        arch='base',
        global_blocks=(2, 5, 8, 11),
        drop_path_rate=0.1,
        init_cfg=dict(
            type='Pretrained', checkpoint='checkpoints/deit_3_base_224_21k.pth'
        ),
    ),
    neck=dict(in_channels=768),
)
