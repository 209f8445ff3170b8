# The authors' released SN-Netv2 of DeiT3-B and DeiT3-L on COCO-Stuff-10K, whose
# anchors have relative position biases that no DeiT3 weights have: to test their files.
# 8 GPUs, batch 16. Paper: 42.7 - 48.1 mIoU at 110 - 363 GFLOPs. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-b-l_8xb2-80k_coco-stuff10k-512x512.py']
anchors = [dict(a, rel_pos_bias=True) for a in _base_.model.backbone.anchors]
model = dict(backbone=dict(anchors=anchors))
