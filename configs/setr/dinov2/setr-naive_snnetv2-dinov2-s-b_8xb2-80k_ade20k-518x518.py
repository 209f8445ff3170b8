# SN-Netv2 with DINOv2-S and DINOv2-B, registers included: SETR-naive on ADE20K. 8 GPUs,
# batch 16. No paper stitches DINOv2; the settings are ours. Ours: not yet run.
_base_ = './setr-naive_snnetv2-dinov2-s-b-l_8xb2-80k_ade20k-518x518.py'
auxiliary_head = dict(_base_.auxiliary_head, in_channels=768)
model = dict(
    backbone=dict(anchors=_base_.model.backbone.anchors[:2], out_indices=(4, 7, 9, 11)),
    decode_head=dict(in_channels=768),
    auxiliary_head=[dict(in_index=i, **auxiliary_head) for i in range(3)],
)
