# SN-Netv2 with BEiTv2-B and BEiTv2-L, finetuned on ImageNet, on COCO-Stuff-10K. 8 GPUs,
# batch 16. Appendix G of the paper shows a curve only. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-b-l_8xb2-80k_coco-stuff10k-512x512.py']
_base_.model.backbone.anchors[0].init_cfg = dict(
    type='Pretrained',
    checkpoint='checkpoints/beitv2_base_patch16_224_pt1k_ft21kto1k.pth',
)
_base_.model.backbone.anchors[1].init_cfg = dict(
    type='Pretrained',
    checkpoint='checkpoints/beitv2_large_patch16_224_pt1k_ft21kto1k.pth',
)
anchors = [dict(a, abs_pos_embed=False) for a in _base_.model.backbone.anchors]
model = dict(backbone=dict(anchors=anchors))
