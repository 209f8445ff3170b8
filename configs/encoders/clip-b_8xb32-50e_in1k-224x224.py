# CLIP's image encoder ViT-B/16, fine-tuned on ImageNet-1K. 8 GPUs, batch 256. No
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
        mean=[122.771, 116.746, 104.094],
        std=[68.501, 66.632, 70.323],
    ),
    backbone=dict(
        _delete_=True,
        type='TimmAnchor',
        model='vit_base_patch16_clip_224.openai',
        pretrained=True,
        final_norm=False,
        drop_path_rate=0.1,
        out='end',
    ),
    head=dict(anchor_heads=[dict(in_channels=768, pooling='cls', norm_eps=1e-5)]),
)
