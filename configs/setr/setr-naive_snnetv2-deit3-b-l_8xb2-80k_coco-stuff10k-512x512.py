# SN-Netv2 with DeiT3-B and DeiT3-L, 134 stitches: SETR on COCO-Stuff-10K (table 1).
# 8 GPUs, batch 16. Paper: 42.7 - 48.1 mIoU at 110 - 363 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_snnetv2-deit3-s-l.py',
    '../_base_/setr_coco-stuff10k.py',
    '../_base_/stitched_runtime.py',
]
fast, slow = _base_.model.backbone.anchors
weights = dict(type='Pretrained', checkpoint='checkpoints/deit_3_base_224_21k.pth')
auxiliary_head = dict(_base_.auxiliary_head, num_classes=171)
model = dict(
    backbone=dict(
        anchors=[dict(fast, arch='base', init_cfg=weights), slow],
        stitching_layer=dict(rank=4),
    ),
    decode_head=dict(num_classes=171),
    auxiliary_head=[dict(in_index=i, **auxiliary_head) for i in range(3)],
)
# As in the paper, all stitches are tested with the batch norm statistics of training.
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'),
    stitch_statistics=dict(num_images=0),
)
