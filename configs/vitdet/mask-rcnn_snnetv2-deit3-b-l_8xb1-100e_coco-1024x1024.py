# SN-Netv2 with DeiT3-B and DeiT3-L, 134 stitches: ViTDet's Mask R-CNN on COCO 2017
# (appendix H). 8 GPUs, batch 8. Paper: no figure.
# Ours: not yet run.
_base_ = ['./mask-rcnn_snnetv2-deit3-s-l_8xb1-100e_coco-1024x1024.py']
_base_.model.backbone.anchors[0].arch = 'base'
_base_.model.backbone.anchors[0].init_cfg = dict(
    type='Pretrained', checkpoint='checkpoints/deit_3_base_224_21k.pth'
)
