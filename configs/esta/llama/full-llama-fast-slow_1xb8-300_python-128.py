# Two tiny LLaMAs stitched with everything trained in full, drawn as by ESTA: no such
# run of language models in the paper. One CPU core, batch 8; measured: see
# ../README.md.
_base_ = ['./esta-llama-fast-slow_1xb8-300_python-128.py']
anchors = [dict(anchor, lora=None) for anchor in _base_.model.backbone.anchors]
layer = dict(_delete_=True, type='StitchingLayer')
model = dict(backbone=dict(anchors=anchors, stitching_layer=layer, plugins=None))
optim_wrapper = dict(optimizer=dict(lr=5e-4))
