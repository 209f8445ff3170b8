# SigLIP2's image encoder ViT-B/16, fine-tuned on ImageNet-1K. 8 GPUs, batch 256. No
# paper has these settings, which are those of DeiT3. Ours: not yet run. Weights:
# timm's, or another file (README.md).
_base_ = [
    '../_base_/models/cls_vit_in1k.py',
    '../_base_/datasets/imagenet_224x224_deit3.py',
    '../_base_/schedules/lamb_cosine_50e.py',
    '../_base_/cls_runtime.py',
]
model = dict(
    data_preprocessor=dict(
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
    ),
    backbone=dict(
        _delete_=True,
        type='TimmAnchor',
        model='vit_base_patch16_siglip_224.v2_webli',
        pretrained=True,
        final_norm=False,
        drop_path_rate=0.1,
        out='end',
    ),
    head=dict(anchor_heads=[dict(in_channels=768, pooling='mean')]),
)
