# DeiT3-L alone, the slow anchor: SETR-naive on ADE20K (SN-Netv2, table 1).
# 8 GPUs, batch 16. Paper: 52.3 mIoU at 363 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_deit3-l.py',
    '../_base_/setr_ade20k.py',
    '../_base_/default_runtime.py',
]
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'))
