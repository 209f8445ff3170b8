# SN-Netv1 of ResNet-18 and Swin-Ti on ImageNet-1K, 8 stitches, without a teacher.
# 8 GPUs, batch 1024. No figure in the paper. Ours: not yet run.
_base_ = [
    '../_base_/models/cls_stitched-resnet18_in1k.py',
    '../_base_/datasets/imagenet_224x224_timm.py',
    '../_base_/schedules/sgd_cosine_30e.py',
    '../_base_/snnetv1_in1k_runtime.py',
]
ti_checkpoint = 'timm://swin_tiny_patch4_window7_224.ms_in1k'
model = dict(
    backbone=dict(
        anchors=[
            *_base_.model.backbone.anchors,
            dict(
                type='TimmStageAnchor',
                model='swin_tiny_patch4_window7_224',
                drop_path_rate=0.1,
                init_cfg=dict(type='Pretrained', checkpoint=ti_checkpoint),
            ),
        ]
    ),
    head=dict(
        anchor_heads=[
            *_base_.model.head.anchor_heads,
            dict(
                in_channels=768,
                pooling='norm-mean',
                norm_eps=1e-5,
                init_cfg=dict(type='Pretrained', checkpoint=ti_checkpoint),
            ),
        ]
    ),
)
