# SN-Netv2 with DeiT3-S and DeiT3-L, 134 stitches: SETR on COCO-Stuff-10K (table 1).
# 8 GPUs, batch 16. Paper: 40.1 - 48.2 mIoU at 34 - 363 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_snnetv2-deit3-s-l.py',
    '../_base_/setr_coco-stuff10k.py',
    '../_base_/stitched_runtime.py',
]
auxiliary_head = dict(_base_.auxiliary_head, num_classes=171)
model = dict(
    decode_head=dict(num_classes=171),
    auxiliary_head=[dict(in_index=i, **auxiliary_head) for i in range(3)],
)
# As in the paper, all stitches are tested with the batch norm statistics of training.
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'),
    stitch_statistics=dict(num_images=0),
)
