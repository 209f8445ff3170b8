# SN-Netv2 with SAM-B and SAM-L on COCO-Stuff-10K, with SAM's windows and relative
# positions. The paper does not specify how it loads these weights. 8 GPUs, batch 16.
# Appendix G of the paper shows a curve only. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-b-l_8xb2-80k_coco-stuff10k-512x512.py']
anchor = dict(
    cls_token=False,
    layer_scale_init=None,
    rel_pos_bias=False,
    window_size=14,
    decomposed_rel_pos=True,
)
files = ('sam_vit_b_01ec64.pth', 'sam_vit_l_0b3195.pth')
blocks = ((2, 5, 8, 11), (5, 11, 17, 23))
anchors = [
    dict(
        dict(deit3, global_blocks=b, **anchor),
        init_cfg=dict(
            type='Pretrained', checkpoint=f'checkpoints/{f}', prefix='image_encoder.'
        ),
    )
    for deit3, b, f in zip(_base_.model.backbone.anchors, blocks, files, strict=True)
]
model = dict(backbone=dict(anchors=anchors))
