# Figure 11 (b): two-way stitching, uniform sampling, stitching layers fully trained.
# 8 GPUs, batch 256. Paper: curve only; DeiT3-S loses 17.2 top-1. Ours: not yet run.
_base_ = ['./snnetv2-deit3-s-l-tws-ros_8xb32-50e_in1k-224x224.py']
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler', per_rank=True)
    )
)
