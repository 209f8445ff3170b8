# Ablation on the CamVid pair: SN-Netv1, fast-to-slow stitches only, uniform sampling
# (paper, table 2, on ADE20K). One CPU core, batch 8; measured: README.md.
_base_ = ['./setr-naive_snnetv2-fast-slow-tws_1xb8-500_camvid-240x176.py']
model = dict(backbone=dict(type='SNNetv1'))
