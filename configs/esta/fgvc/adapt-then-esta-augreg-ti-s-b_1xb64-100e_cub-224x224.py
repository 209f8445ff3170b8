# The second stage of "adapt, then stitch" on CUB-200-2011: the three adapted networks
# of full-augreg-*, stitched by ESTA's own recipe (ESTA, figure 6d). One GPU, batch 64.
# Paper: curve only. Ours: not yet run.
_base_ = ['./snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
for size, anchor, head in zip(
    ('ti', 's', 'b'),
    _base_.model.model.backbone.anchors,
    _base_.model.model.head.anchor_heads,
    strict=True,
):
    file = f'work_dirs/full-augreg-{size}_1xb64-100e_cub-224x224/iter_8500.pth'
    anchor.init_cfg.update(checkpoint=file, prefix='backbone.')
    head.init_cfg = dict(
        type='Pretrained', checkpoint=file, prefix='head.anchor_heads.0.'
    )
del size, anchor, head, file
