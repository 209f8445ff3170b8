# SN-Netv1 of Swin-Ti and S, 19 stitches in the first three stages: Mask R-CNN on COCO
# 2017 with mmdetection's 3x recipe for Swin. 8 GPUs, batch 16. No figure in the paper;
# not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_swin-s.py',
    '../_base_/models/snnetv1_swin-ti-s.py',
    '../_base_/datasets/coco_ms-crop.py',
    '../_base_/schedules/adamw_swin_3x.py',
    '../_base_/stitched_detection_runtime.py',
]
swin = _base_.stitched_swin
anchors = [dict(anchor, drop_path_rate=0.2) for anchor in swin.anchors]
model = dict(backbone=dict(_delete_=True, **dict(swin, anchors=anchors)))
# Ten times the anchors' learning rate, which is the recipe's.
optim_wrapper = dict(paramwise_cfg=dict(lr_mults={'backbone.stitching_layers': 10.0}))
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler'), input_size=(800, 1344)
    )
)
test_cfg = dict(input_size=(800, 1344))
