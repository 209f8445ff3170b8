# SN-Netv2 of DeiT3-S and DeiT3-L on NYUv2 as in the authors' code, rank 16:
# feed-forward branches add their own normalised input. For testing the authors' files.
# 4 GPUs, batch 16. Paper: curve only. Ours: not yet run.
_base_ = ['./dpt_snnetv2-deit3-s-l-r16_4xb4-24e_nyu-416x544.py']
theirs = dict(mlp_shortcut=True, norm_eps=1e-5)
anchors = [dict(a, **theirs) for a in _base_.model.backbone.anchors]
model = dict(backbone=dict(anchors=anchors))
