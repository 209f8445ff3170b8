# The first four blocks of DINOv2 ViT-S/14 fine-tuned on CamVid, the fast anchor of the
# pair. One CPU core, batch 4. No figure in the paper; measured by
# tools/research/pair.py: docs/explanation/experiments.md.
_base_ = ['./setr-naive_dinov2-s_1xb4-600_camvid-238x168.py']
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=384, depth=4, num_heads=6),
        init_cfg=dict(blocks=(0, 4)),
    )
)
# The cut network has further to go than the whole one.
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=0.1))))
