# ViTDet's Mask R-CNN on DeiT3-L, images of 1024x1024.
_base_ = ['./mask-rcnn_vitdet.py']
model = dict(
    backbone=dict(
        arch='large',
        global_blocks=(5, 11, 17, 23),
        drop_path_rate=0.4,
        init_cfg=dict(
            type='Pretrained', checkpoint='checkpoints/deit_3_large_224_21k.pth'
        ),
    ),
    neck=dict(in_channels=1024),
)
