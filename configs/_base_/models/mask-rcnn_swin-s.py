# Mask R-CNN on Swin-S, as in mmdetection.
_base_ = ['./mask-rcnn_swin-ti.py']
model = dict(
    backbone=dict(
        model='swin_small_patch4_window7_224',
        out_indices=(1, 3, 21, 23),
        init_cfg=dict(checkpoint='timm://swin_small_patch4_window7_224.ms_in1k'),
    )
)
