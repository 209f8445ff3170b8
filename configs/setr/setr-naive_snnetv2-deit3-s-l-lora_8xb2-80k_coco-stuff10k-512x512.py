# SN-Netv2 with DeiT3-S and DeiT3-L, the anchors trained by LoRA alone: COCO-Stuff-10K
# (table 3, appendix F). The paper names neither rank nor layers: here it is the rank of
# the stitching layers, on qkv and proj.
# 8 GPUs, batch 16. Paper: 42.6 - 45.8 mIoU at 34 - 363 GFLOPs. Ours: not yet run.
_base_ = [
    './setr-naive_snnetv2-deit3-s-l_8xb2-80k_coco-stuff10k-512x512.py',
]
lora = dict(rank=16, alpha=16)
model = dict(
    backbone=dict(
        anchors=[
            dict(
                type='PlainViT',
                arch='small',
                img_size=512,
                drop_path_rate=0.1,
                lora=lora,
                init_cfg=dict(
                    type='Pretrained', checkpoint='checkpoints/deit_3_small_224_21k.pth'
                ),
            ),
            dict(
                type='PlainViT',
                arch='large',
                img_size=512,
                drop_path_rate=0.1,
                lora=lora,
                init_cfg=dict(
                    type='Pretrained', checkpoint='checkpoints/deit_3_large_224_21k.pth'
                ),
            ),
        ],
    ),
)
