# SN-Netv1 of ResNet-18 and 50 on ImageNet-1K, 10 stitches in the second and third
# stage, with RegNetY-160 as the teacher (SN-Netv1, section 4.1). 8 GPUs, batch 1024.
# Paper: 68.3 - 77.5 top-1 at 1.8 - 4.1 GFLOPs (the authors' published file).
# Ours: not yet run.
_base_ = [
    '../_base_/models/cls_stitched-resnet18_in1k.py',
    '../_base_/datasets/imagenet_224x224_deit.py',
    '../_base_/schedules/sgd_cosine_30e.py',
    '../_base_/stitched_cls_runtime.py',
]
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
# timm's augmentation: as DeiT's without repeats, and random erasing of any image with
# half the probability of 0.6 with which timm erases in the second half of every batch.
_base_.train_pipeline[4].erase_prob = 0.6 / 2
train_dataloader = dict(
    sampler=dict(_delete_=True, type='SeededSampler', shuffle=True),
    dataset=dict(pipeline=_base_.train_pipeline),
)
# As in the authors' code: every GPU draws its own stitch uniformly, and all are tested
# with the batch norm statistics of training.
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler', per_rank=True)
    ),
    stitch_statistics=dict(num_images=0),
)
