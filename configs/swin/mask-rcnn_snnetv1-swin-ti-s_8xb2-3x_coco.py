# SN-Netv1 of Swin-Ti and S, 19 stitches in the first three stages: Mask R-CNN on COCO
# 2017 with mmdetection's 3x recipe for Swin. 8 GPUs, batch 16. No figure in the paper;
# not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_swin-ti.py',
    '../_base_/swin_coco_3x.py',
    '../_base_/stitched_detection_runtime.py',
]
anchors = [
    dict(
        type='TimmStageAnchor',
        model=f'swin_{size}_patch4_window7_224',
        img_size=512,
        drop_path_rate=0.2,
        init_cfg=dict(
            type='Pretrained',
            checkpoint=f'timm://swin_{size}_patch4_window7_224.ms_in1k',
        ),
    )
    for size in ('tiny', 'small')
]
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv1',
        anchors=anchors,
        stages=(0, 1, 2),
        out_indices=(1, 3, 21, 23),
    )
)
# Ten times the anchors' learning rate, which is the recipe's.
optim_wrapper = dict(paramwise_cfg=dict(lr_mults={'backbone.stitching_layers': 10.0}))
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=2, save_best='coco/bbox_mAP'),
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler'), input_size=(800, 1344)
    ),
)
test_cfg = dict(input_size=(800, 1344))
