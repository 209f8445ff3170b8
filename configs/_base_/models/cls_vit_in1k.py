# A classifier of ImageNet-1K on one plain ViT, with DeiT's mixup and CutMix.
_base_ = ['./cls_vit.py']
model = dict(
    data_preprocessor=dict(num_classes=1000),
    head=dict(num_classes=1000),
    train_cfg=dict(
        augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]
    ),
)
