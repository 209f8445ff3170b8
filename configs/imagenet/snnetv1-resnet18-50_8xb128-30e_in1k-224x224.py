# SN-Netv1 of ResNet-18 and 50 on ImageNet-1K, 10 stitches in the second and third
# stage, with RegNetY-160 as the teacher (SN-Netv1, section 4.1). 8 GPUs, batch 1024.
# Paper: curve only; the authors' file: 68.3 - 77.5 top-1 at 1.8 - 4.1 GFLOPs. Ours:
# not yet run.
_base_ = ['../_base_/stitched-resnet18_in1k.py']
r50_checkpoint = 'timm://resnet50.a1_in1k'
model = dict(
    _delete_=True,
    type='DistillationWrapper',
    model=dict(
        _base_.model,
        backbone=dict(
            _base_.model.backbone,
            anchors=[
                *_base_.model.backbone.anchors,
                dict(
                    type='TimmStageAnchor',
                    model='resnet50',
                    init_cfg=dict(type='Pretrained', checkpoint=r50_checkpoint),
                ),
            ],
        ),
        head=dict(
            _base_.model.head,
            anchor_heads=[
                *_base_.model.head.anchor_heads,
                dict(
                    in_channels=2048,
                    pooling='mean',
                    norm=None,
                    init_cfg=dict(type='Pretrained', checkpoint=r50_checkpoint),
                ),
            ],
        ),
    ),
)
