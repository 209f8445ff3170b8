# SN-Netv2 with DeiT3-S and DeiT3-L, 134 stitches: SETR-naive on ADE20K (table 1).
# 8 GPUs, batch 16. Paper: 45.6 - 51.4 mIoU at 34 - 363 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_snnetv2-deit3-s-l.py',
    '../_base_/setr_ade20k.py',
    '../_base_/stitched_runtime.py',
]
# As in the paper, all stitches are tested with the batch norm statistics of training.
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'),
    stitch_statistics=dict(num_images=0),
)
