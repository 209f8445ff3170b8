# SN-Netv1 of Swin-Ti and S, 19 stitches in the first three stages, for dense tasks. The
# configs that inherit it insert it into their models.
stitched_swin = dict(
    type='SNNetv1',
    anchors=[
        dict(
            type='TimmStageAnchor',
            model=f'swin_{size}_patch4_window7_224',
            img_size=512,
            init_cfg=dict(
                type='Pretrained',
                checkpoint=f'timm://swin_{size}_patch4_window7_224.ms_in1k',
            ),
        )
        for size in ('tiny', 'small')
    ],
    stages=(0, 1, 2),
    out_indices=(1, 3, 21, 23),
)
