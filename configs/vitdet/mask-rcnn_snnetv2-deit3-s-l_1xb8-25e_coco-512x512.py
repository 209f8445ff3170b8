# SN-Netv2 with DeiT3-S and DeiT3-L at half the size: ViTDet's Mask R-CNN on COCO 2017.
# One GPU, batch 8. No figure in the paper; not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_snnetv2-deit3-s-l.py',
    '../_base_/datasets/coco_512x512.py',
    '../_base_/schedules/adamw_vitdet_25e.py',
    '../_base_/stitched_detection_runtime.py',
]
anchors = [dict(anchor, img_size=512) for anchor in _base_.model.backbone.anchors]
model = dict(
    data_preprocessor=dict(pad_size_divisor=512), backbone=dict(anchors=anchors)
)
optim_wrapper = dict(paramwise_cfg=dict(decay_rates=(0.7, 0.8)))
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=2), stitch_sampling=dict(input_size=(512, 512))
)
test_cfg = dict(input_size=(512, 512))
