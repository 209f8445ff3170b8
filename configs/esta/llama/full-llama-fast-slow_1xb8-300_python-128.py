# Two tiny LLaMAs, stitched and trained in full with ESTA's sampling. The paper has no
# such run of language models. One CPU core, batch 8; measured: see ../small_scale.md.
_base_ = ['./esta-llama-fast-slow_1xb8-300_python-128.py']
anchors = [dict(anchor, lora=None) for anchor in _base_.model.backbone.anchors]
layer = dict(_delete_=True, type='StitchingLayer')
model = dict(backbone=dict(anchors=anchors, stitching_layer=layer, plugins=None))
optim_wrapper = dict(optimizer=dict(lr=5e-4))
