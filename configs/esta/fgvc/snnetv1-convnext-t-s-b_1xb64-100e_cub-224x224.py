# ESTA on CUB-200-2011 with ConvNeXt-T, S and B of ImageNet-22K (figure 9a): 63
# stitches. One GPU, batch 64. Paper: curve only. Ours: not yet run. The paper leaves
# these settings open: updates and biases per stitch, in ViTs only in the attention, are
# in the two pointwise layers of every block; the rest, including down-sampling, is
# frozen; ranks are as for ViTs; the first three stages are stitched, as for Swin in
# SN-Netv1; the heads' norms are new and trained.
_base_ = ['./snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
ranks = dict(tiny=32, small=16, base=8)
anchors = [
    dict(
        type='TimmStageAnchor',
        model=f'convnext_{size}',
        img_size=224,
        lora=dict(rank=rank, alpha=rank),
        init_cfg=dict(type='Pretrained', checkpoint=f'timm://convnext_{size}.fb_in22k'),
    )
    for size, rank in ranks.items()
]
heads = [dict(in_channels=width, pooling='mean') for width in (768, 768, 1024)]
model = dict(
    model=dict(
        backbone=dict(anchors=anchors, stages=(0, 1, 2)),
        head=dict(anchor_heads=heads),
    )
)
