# ViTDet's Mask R-CNN on DeiT3-B, images of 1024x1024, as on DeiT3-L.
_base_ = ['./mask-rcnn_deit3-l.py']
model = dict(
    backbone=dict(
        arch='base',
        global_blocks=(2, 5, 8, 11),
        drop_path_rate=0.1,
        init_cfg=dict(checkpoint='checkpoints/deit_3_base_224_21k.pth'),
    ),
    neck=dict(in_channels=768),
)
