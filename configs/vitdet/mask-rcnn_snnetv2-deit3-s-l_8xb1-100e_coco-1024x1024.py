# SN-Netv2 with DeiT3-S and DeiT3-L, 134 stitches: ViTDet's Mask R-CNN on COCO 2017
# (appendix H). 8 GPUs, batch 8. Paper: 42.9 box AP at the FLOPs of DeiT3-S, 51.2 at the
# FLOPs of DeiT3-L. Ours: not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_snnetv2-deit3-s-l.py',
    '../_base_/datasets/coco_1024x1024.py',
    '../_base_/schedules/adamw_vitdet_100e.py',
    '../_base_/stitched_detection_runtime.py',
]
optim_wrapper = dict(paramwise_cfg=dict(decay_rates=(0.7, 0.8)))
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=2), stitch_sampling=dict(input_size=(1024, 1024))
)
test_cfg = dict(input_size=(1024, 1024))
