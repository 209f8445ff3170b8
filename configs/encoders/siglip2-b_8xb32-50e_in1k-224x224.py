# SigLIP2's image encoder ViT-B/16, fine-tuned on ImageNet-1K. 8 GPUs, batch 256. No
# paper has these settings, which are those of DeiT3. Ours: not yet run. Weights:
# timm's, or another file (README.md).
_base_ = ['./clip-b_8xb32-50e_in1k-224x224.py']
model = dict(
    data_preprocessor=dict(mean=[127.5, 127.5, 127.5], std=[127.5, 127.5, 127.5]),
    backbone=dict(model='vit_base_patch16_siglip_224.v2_webli'),
    head=dict(anchor_heads=[dict(in_channels=768, pooling='mean')]),
)
