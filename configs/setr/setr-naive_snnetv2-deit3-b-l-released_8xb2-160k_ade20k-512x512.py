# The authors' released SN-Netv2 of DeiT3-B and DeiT3-L on ADE20K, whose
# anchors have relative position biases that no DeiT3 weights have: to test their files.
# 8 GPUs, batch 16. Paper: 48.5 - 52.2 mIoU at 110 - 363 GFLOPs. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-b-l_8xb2-160k_ade20k-512x512.py']
anchors = [dict(a, rel_pos_bias=True) for a in _base_.model.backbone.anchors]
model = dict(backbone=dict(anchors=anchors))
