# Figures 6 and 11 (a): SN-Netv1 of DeiT3-S and DeiT3-L on ImageNet-1K, 13 stitches, all
# with the classifier of DeiT3-L, as in the authors' code.
# 8 GPUs, batch 256. Paper: curve only. Ours: not yet run.
_base_ = ['./snnetv2-deit3-s-l_8xb32-50e_in1k-224x224.py']
_base_.model.head.anchor_heads[0] = None
model = dict(
    backbone=dict(
        kinds=('FS',),
        out='maps',
        with_cls=True,
        stitching_layer=dict(_delete_=True, type='StitchingLayer'),
    ),
    head=dict(of_slowest=True),
)
test_cfg = dict(input_size=(224, 224))
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler', per_rank=True)
    )
)
