# SN-Netv2 with AugReg-B and AugReg-L, finetuned on ImageNet-1K, on COCO-Stuff-10K.
# 8 GPUs, batch 16. Appendix G of the paper shows a curve only. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-b-l_8xb2-80k_coco-stuff10k-512x512.py']
_base_.model.backbone.anchors[0].init_cfg = dict(
    type='Pretrained',
    checkpoint='checkpoints/vit_base_patch16_384.augreg_in21k_ft_in1k.bin',
)
_base_.model.backbone.anchors[1].init_cfg = dict(
    type='Pretrained',
    checkpoint='checkpoints/vit_large_patch16_384.augreg_in21k_ft_in1k.bin',
)
anchor = dict(pos_embed_prefix=True, layer_scale_init=None)
model = dict(
    backbone=dict(
        anchors=[dict(deit3, **anchor) for deit3 in _base_.model.backbone.anchors]
    )
)
