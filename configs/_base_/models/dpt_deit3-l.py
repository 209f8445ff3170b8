# DPT on DeiT3-L, for 416x544 crops. As in SN-Netv2's code, position embeddings keep the
# grid of 14x14 patches and are resized in every forward.
_base_ = ['./dpt_vit.py']
model = dict(
    data_preprocessor=dict(size=(416, 544)),
    backbone=dict(
        arch='large',
        img_size=224,
        pos_embed_antialias=False,
        out_indices=(4, 11, 17, 23),
        init_cfg=dict(
            type='Pretrained', checkpoint='checkpoints/deit_3_large_224_21k.pth'
        ),
    ),
    decode_head=dict(in_channels=1024, activation='relu'),
)
