# SN-Netv2 with DINOv2-B and DINOv2-L, registers included: SETR-naive on ADE20K. 8 GPUs,
# batch 16. No paper stitches DINOv2; the settings are ours. Ours: not yet run.
_base_ = './setr-naive_snnetv2-dinov2-s-b-l_8xb2-80k_ade20k-518x518.py'
model = dict(backbone=dict(anchors=_base_.model.backbone.anchors[1:]))
