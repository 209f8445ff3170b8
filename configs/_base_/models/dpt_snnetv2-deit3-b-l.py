# DPT on SN-Netv2 of DeiT3-B and DeiT3-L, for 416x544 crops.
_base_ = ['./dpt_snnetv2-deit3-s-l.py']
_base_.model.backbone.anchors[0].arch = 'base'
_base_.model.backbone.anchors[0].init_cfg = dict(
    type='Pretrained', checkpoint='checkpoints/deit_3_base_224_21k.pth'
)
