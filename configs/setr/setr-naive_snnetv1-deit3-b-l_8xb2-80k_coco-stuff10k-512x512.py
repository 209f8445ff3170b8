# Figure 8: SN-Netv1 with DeiT3-B and DeiT3-L, 13 stitches: SETR on COCO-Stuff-10K.
# 8 GPUs, batch 16. Paper: curve only. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-b-l_8xb2-80k_coco-stuff10k-512x512.py']
model = dict(
    backbone=dict(
        type='SNNetv1', stitching_layer=dict(_delete_=True, type='StitchingLayer')
    )
)
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler'))
)
