# A LLaMA of 8 blocks of width 256 on bytes, from scratch: the slow anchor of
# esta-llama-fast-slow. One CPU core, batch 8. No such network in the paper; measured:
# see ../small_scale.md.
_base_ = ['./llama-fast_1xb8-600_python-128.py']
size = dict(hidden_size=256, intermediate_size=688)
size.update(num_hidden_layers=8, num_attention_heads=8)
model = dict(backbone=dict(model=size))
optim_wrapper = dict(optimizer=dict(lr=1e-3))
