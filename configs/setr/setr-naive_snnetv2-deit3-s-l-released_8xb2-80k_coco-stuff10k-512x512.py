# The authors' released SN-Netv2 of DeiT3-S and DeiT3-L on COCO-Stuff-10K, whose
# anchors have relative position biases that no DeiT3 weights have: to test their files.
# 8 GPUs, batch 16. Paper: 40.1 - 48.2 mIoU at 34 - 363 GFLOPs. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-s-l_8xb2-80k_coco-stuff10k-512x512.py']
anchors = [dict(a, rel_pos_bias=True) for a in _base_.model.backbone.anchors]
model = dict(backbone=dict(anchors=anchors))
