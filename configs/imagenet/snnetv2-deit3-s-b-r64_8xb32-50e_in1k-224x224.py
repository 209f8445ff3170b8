# SN-Netv2 of DeiT3-S and DeiT3-B with the rank 64 of the authors' released file;
# the paper says 16. 8 GPUs, batch 256 (their settings: 512). Ours: not yet run.
_base_ = ['./snnetv2-deit3-s-b_8xb32-50e_in1k-224x224.py']
model = dict(backbone=dict(stitching_layer=dict(rank=64)))
