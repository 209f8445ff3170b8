# The image encoder of SAM-B: ViTDet's Mask R-CNN on COCO 2017, which has the same
# windows and relative positions. 8 GPUs, batch 8. No figure in a paper; the settings
# are those of DeiT3-B. Ours: not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_deit3-l.py',
    '../_base_/datasets/coco_1024x1024.py',
    '../_base_/schedules/adamw_vitdet_100e.py',
    '../_base_/detection_runtime.py',
]
model = dict(
    backbone=dict(
        arch='base',
        cls_token=False,
        decomposed_rel_pos=True,
        layer_scale_init=None,
        global_blocks=(2, 5, 8, 11),
        drop_path_rate=0.1,
        init_cfg=dict(
            checkpoint='checkpoints/sam_vit_b_01ec64.pth', prefix='image_encoder.'
        ),
    ),
    neck=dict(in_channels=768),
)
optim_wrapper = dict(paramwise_cfg=dict(decay_rates=0.7))
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='coco/bbox_mAP'))
