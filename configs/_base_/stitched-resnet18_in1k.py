# SN-Netv1 of ResNet-18 and a slower network on ImageNet-1K, stitched in the second and
# the third stage, 30 epochs; configs that inherit this add the slower network.
_base_ = [
    './datasets/imagenet_224x224_deit.py',
    './schedules/sgd_cosine_30e.py',
    './stitched_cls_runtime.py',
]
r18_checkpoint = 'timm://resnet18.tv_in1k'
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(
        type='ClsDataPreprocessor',
        num_classes=1000,
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        to_rgb=True,
    ),
    backbone=dict(
        type='SNNetv1',
        out='end',
        anchors=[
            dict(
                type='TimmStageAnchor',
                model='resnet18',
                init_cfg=dict(type='Pretrained', checkpoint=r18_checkpoint),
            )
        ],
        stages=(1, 2),
        share_layers=True,
    ),
    head=dict(
        type='StitchedClsHead',
        num_classes=1000,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        anchor_heads=[
            dict(
                in_channels=512,
                pooling='mean',
                norm=None,
                init_cfg=dict(type='Pretrained', checkpoint=r18_checkpoint),
            )
        ],
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
