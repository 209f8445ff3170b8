# SN-Netv2 with DeiT3-S and DeiT3-L on COCO-Stuff-10K, full stitching layers
# (appendix B). 8 GPUs, batch 16. The paper shows a curve only. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-s-l_8xb2-80k_coco-stuff10k-512x512.py']
model = dict(backbone=dict(stitching_layer=dict(_delete_=True, type='StitchingLayer')))
