# SN-Netv1 of Swin-Ti and S, 19 stitches in the first three stages: Mask R-CNN on COCO
# 2017 with mmdetection's 3x recipe for Swin. 8 GPUs, batch 16. No figure in the paper;
# not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_swin-s.py',
    '../_base_/datasets/coco_ms-crop.py',
    '../_base_/schedules/adamw_swin_3x.py',
    '../_base_/stitched_detection_runtime.py',
]
anchor = dict(type='TimmStageAnchor', img_size=512, drop_path_rate=0.2)
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv1',
        anchors=[
            dict(
                model='swin_tiny_patch4_window7_224',
                init_cfg=dict(
                    type='Pretrained',
                    checkpoint='timm://swin_tiny_patch4_window7_224.ms_in1k',
                ),
                **anchor,
            ),
            dict(
                model='swin_small_patch4_window7_224',
                init_cfg=dict(
                    type='Pretrained',
                    checkpoint='timm://swin_small_patch4_window7_224.ms_in1k',
                ),
                **anchor,
            ),
        ],
        stages=(0, 1, 2),
        out_indices=(1, 3, 21, 23),
    ),
)
# Ten times that of the anchors, which have the recipe's.
optim_wrapper = dict(paramwise_cfg=dict(lr_mults={'backbone.stitching_layers': 10.0}))
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler'), input_size=(800, 1344)
    )
)
test_cfg = dict(input_size=(800, 1344))
