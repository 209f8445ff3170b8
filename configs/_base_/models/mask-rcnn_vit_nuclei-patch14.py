# The Mask R-CNN for nuclei on ViT-S with 14x14 patches: all strides follow the patch
# size.
_base_ = ['./mask-rcnn_vit_nuclei.py']
strides = [3.5, 7, 14, 28]
model = dict(
    data_preprocessor=dict(pad_size_divisor=252),
    neck=dict(in_channels=384, in_stride=14, strides=strides),
    rpn_head=dict(anchor_generator=dict(strides=strides)),
    roi_head=dict(
        bbox_roi_extractor=dict(featmap_strides=strides),
        mask_roi_extractor=dict(featmap_strides=strides),
    ),
)
