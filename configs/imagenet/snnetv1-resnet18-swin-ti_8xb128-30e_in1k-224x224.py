# SN-Netv1 of ResNet-18 and Swin-Ti on ImageNet-1K, 8 stitches in the second and third
# stage, with RegNetY-160 as the teacher (SN-Netv1, section 4.1). 8 GPUs, batch 1024.
# Paper: curve only; the authors' file: 68.7 - 81.3 top-1 at 1.8 - 4.5 GFLOPs. Ours:
# not yet run.
_base_ = ['../_base_/stitched-resnet18_in1k.py']
ti_checkpoint = 'timm://swin_tiny_patch4_window7_224.ms_in1k'
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
                    model='swin_tiny_patch4_window7_224',
                    drop_path_rate=0.1,
                    init_cfg=dict(type='Pretrained', checkpoint=ti_checkpoint),
                ),
            ],
        ),
        head=dict(
            _base_.model.head,
            anchor_heads=[
                *_base_.model.head.anchor_heads,
                dict(
                    in_channels=768,
                    pooling='norm-mean',
                    norm_eps=1e-5,
                    init_cfg=dict(type='Pretrained', checkpoint=ti_checkpoint),
                ),
            ],
        ),
    ),
)
