# SN-Netv2 with DINOv2-S, DINOv2-B and DINOv2-L, registers included, a chain of three,
# 267 stitches: SETR-naive on ADE20K. 8 GPUs, batch 16. No paper stitches DINOv2; the
# settings are ours. Not measured: not yet run.
_base_ = ['./setr-naive_snnetv2-dinov2-b-l_8xb2-80k_ade20k-518x518.py']
anchors = _base_.model.backbone.anchors
small = dict(anchors[0], model='vit_small_patch14_reg4_dinov2.lvd142m')
model = dict(backbone=dict(anchors=[small, *anchors]))
