# Ablation of ESTA on the tiny family: no biases per stitch, but ranks that train as
# many parameters (paper, figure 6b). One CPU core, batch 64; ours: measured, see
# ../small_scale.md.
_base_ = ['./esta-ti-s-b_1xb64-600_tinyimagenet20-64x64.py']
ranks = (20, 10, 5)
anchors = [
    dict(anchor, lora=dict(rank=rank, alpha=rank))
    for anchor, rank in zip(_base_.model.model.backbone.anchors, ranks, strict=True)
]
model = dict(
    model=dict(
        backbone=dict(anchors=anchors, stitching_layer=dict(rank=0.625), plugins=None)
    )
)
