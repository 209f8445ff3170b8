# UPerNet and an auxiliary head on Swin-S, 150 classes, as in mmsegmentation.
_base_ = ['./upernet_swin-ti.py']
model = dict(
    backbone=dict(
        model='swin_small_patch4_window7_224',
        out_indices=(1, 3, 21, 23),
        init_cfg=dict(checkpoint='timm://swin_small_patch4_window7_224.ms_in1k'),
    )
)
