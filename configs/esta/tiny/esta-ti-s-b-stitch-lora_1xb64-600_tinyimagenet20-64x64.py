# Ablation of ESTA on the tiny family: separate updates of rank 1, the lowest, per
# stitch replace shared updates and biases (paper, figure 12). One CPU core, batch 64;
# ours: measured, see ../small_scale.md.
_base_ = ['./esta-ti-s-b_1xb64-600_tinyimagenet20-64x64.py']
anchors = [
    dict(anchor, lora=None, frozen_stages=6)
    for anchor in _base_.model.model.backbone.anchors
]
plugins = dict(_delete_=True, stitch_lora=dict(type='StitchLoRA', ranks=(1, 1, 1)))
model = dict(model=dict(backbone=dict(anchors=anchors, plugins=plugins)))
