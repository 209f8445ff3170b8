# DPT on a stitched backbone of DINOv2, registers included, for 420x546 crops; the
# anchors are set by the configs that inherit it.
_base_ = ['./dpt_snnetv2.py']
anchor = dict(type='TimmAnchor', pretrained=True, img_size=(420, 546))
model = dict(
    data_preprocessor=dict(
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        size=(420, 546),
        test_cfg=dict(size_divisor=14),
    )
)
