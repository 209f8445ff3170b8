# SN-Netv2 with DeiT3-S and DeiT3-L, the anchors trained by LoRA alone: COCO-Stuff-10K
# (table 3, appendix F). The updates follow the authors' released lora.py, which their
# code never calls: every linear layer and the patch convolution, rank 4, scale 1/4.
# 8 GPUs, batch 16. Paper: 42.6 - 45.8 mIoU at 34 - 363 GFLOPs. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-s-l_8xb2-80k_coco-stuff10k-512x512.py']
lora = dict(rank=4, alpha=1, targets='all')
anchors = [dict(anchor, lora=lora) for anchor in _base_.model.backbone.anchors]
model = dict(backbone=dict(anchors=anchors))
