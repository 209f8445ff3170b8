# SN-Netv1 with DeiT3-S and DeiT3-L, 13 stitches: DPT on NYUv2 (figure 9). 4 GPUs,
# batch 16. Paper: curve only. Ours: not yet run.
_base_ = ['./dpt_snnetv2-deit3-s-l_4xb4-24e_nyu-416x544.py']
model = dict(
    backbone=dict(
        type='SNNetv1', stitching_layer=dict(_delete_=True, type='StitchingLayer')
    )
)
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler', per_rank=True)
    )
)
