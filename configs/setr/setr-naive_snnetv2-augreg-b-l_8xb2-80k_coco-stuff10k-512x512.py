# SN-Netv2 with AugReg-B and AugReg-L, ImageNet-1K finetuned, on COCO-Stuff-10K.
# 8 GPUs, batch 16. Appendix G of the paper shows a curve only. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-b-l_8xb2-80k_coco-stuff10k-512x512.py']
anchor = dict(
    type='PlainViT',
    img_size=512,
    drop_path_rate=0.1,
    pos_embed_prefix=True,
    layer_scale_init=None,
)
model = dict(
    backbone=dict(
        anchors=[
            dict(
                arch='base',
                init_cfg=dict(
                    type='Pretrained',
                    checkpoint='checkpoints/vit_base_patch16_384.augreg_in21k_ft_in1k.bin',
                ),
                **anchor,
            ),
            dict(
                arch='large',
                init_cfg=dict(
                    type='Pretrained',
                    checkpoint='checkpoints/vit_large_patch16_384.augreg_in21k_ft_in1k.bin',
                ),
                **anchor,
            ),
        ],
    ),
)
