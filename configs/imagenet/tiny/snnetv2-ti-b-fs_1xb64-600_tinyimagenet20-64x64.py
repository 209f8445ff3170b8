# Figure 11 (a) of the paper on the tiny family: fast-to-slow stitches only, as SN-Netv1
# has them at unequal depths. One CPU core, batch 64; measured: see README.md.
_base_ = ['./snnetv2-ti-b-tws_1xb64-600_tinyimagenet20-64x64.py']
model = dict(backbone=dict(kinds=['FS']))
