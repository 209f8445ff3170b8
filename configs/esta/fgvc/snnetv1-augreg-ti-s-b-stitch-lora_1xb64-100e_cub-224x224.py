# The baseline of ESTA's figure 12 on CUB-200-2011: separate low-rank updates per stitch
# replace shared updates and biases. The paper specifies no ranks; rank 1, the lowest,
# trains 4.2 M parameters, ESTA 4.7 M. One GPU, batch 64. Paper: curve only. Ours:
# not yet run.
_base_ = ['./snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
anchors = [
    dict(anchor, lora=None, frozen_stages=12)
    for anchor in _base_.model.model.backbone.anchors
]
plugins = dict(_delete_=True, stitch_lora=dict(type='StitchLoRA', ranks=(1, 1, 1)))
model = dict(model=dict(backbone=dict(anchors=anchors, plugins=plugins)))
