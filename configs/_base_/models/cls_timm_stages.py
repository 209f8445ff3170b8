# A classifier on one network of timm that has stages; the network, its end and the
# classes are set by the configs that inherit it.
_base_ = ['./cls_vit.py']
model = dict(backbone=dict(_delete_=True, type='TimmStageAnchor', out='end'))
