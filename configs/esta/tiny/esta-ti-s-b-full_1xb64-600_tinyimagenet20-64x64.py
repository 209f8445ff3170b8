# Ablation of ESTA on the tiny family: trained in full, with ESTA's sampling and teacher
# (paper, figure 6a). One CPU core, batch 64; measured: see ../small_scale.md.
_base_ = ['./esta-ti-s-b_1xb64-600_tinyimagenet20-64x64.py']
anchors = [dict(a, lora=None) for a in _base_.model.model.backbone.anchors]
layer = dict(_delete_=True, type='StitchingLayer')
model = dict(
    model=dict(backbone=dict(anchors=anchors, stitching_layer=layer, plugins=None))
)
optim_wrapper = dict(optimizer=dict(lr=5e-4))
