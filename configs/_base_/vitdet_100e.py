# One ViTDet on COCO: data, 100 epochs of batch 8, runtime.
_base_ = [
    './datasets/coco_1024x1024.py',
    './schedules/adamw_vitdet_100e.py',
    './detection_runtime.py',
]
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2))
