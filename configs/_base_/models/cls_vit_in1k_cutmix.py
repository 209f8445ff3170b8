# A classifier of ImageNet-1K on one plain ViT, with CutMix as in DeiT3's finetuning.
_base_ = ['./cls_vit_in1k.py']
model = dict(train_cfg=dict(augments=[dict(type='CutMix', alpha=1.0)]))
