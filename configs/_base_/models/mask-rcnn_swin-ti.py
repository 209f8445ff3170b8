# Mask R-CNN on Swin-Ti, as in mmdetection.
_base_ = ['./mask-rcnn_timm_stages.py']
widths = [96, 192, 384, 768]
model = dict(
    backbone=dict(
        model='swin_tiny_patch4_window7_224',
        # Any size whose last map is larger than a window.
        img_size=512,
        out_indices=(1, 3, 9, 11),
        drop_path_rate=0.2,
        init_cfg=dict(
            type='Pretrained', checkpoint='timm://swin_tiny_patch4_window7_224.ms_in1k'
        ),
    ),
    neck=[
        dict(type='NormPerMap', in_channels=widths),
        dict(type='FPN', in_channels=widths, out_channels=256, num_outs=5),
    ],
)
