# Ablation of ESTA on the CamVid pair: trained in full, with ESTA's sampling and teacher
# (paper, figure 6a, on FGVC). One CPU core, batch 8; ours: measured, see ../README.md.
_base_ = ['./esta-setr-naive-fast-slow_1xb8-120_camvid-240x176.py']
anchors = [dict(a, lora=None) for a in _base_.model.model.backbone.anchors]
layer = dict(_delete_=True, type='StitchingLayer')
model = dict(
    model=dict(backbone=dict(anchors=anchors, stitching_layer=layer, plugins=None))
)
optim_wrapper = dict(optimizer=dict(lr=5e-4))
