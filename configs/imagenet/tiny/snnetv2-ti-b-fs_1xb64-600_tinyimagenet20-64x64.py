# Figure 11 (a) of the paper on the tiny family: fast-to-slow stitches only, as in
# SN-Netv1 for unequal depths. One CPU core, batch 64; measured: see ../small_scale.md.
_base_ = ['./snnetv2-ti-b-tws_1xb64-600_tinyimagenet20-64x64.py']
model = dict(backbone=dict(kinds=['FS']))
