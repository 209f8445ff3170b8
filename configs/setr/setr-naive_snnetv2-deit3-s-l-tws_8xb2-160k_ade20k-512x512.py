# Table 2, second row: two-way stitching, uniform sampling, layers fully trained.
# 8 GPUs, batch 16. Paper: 42.8 - 50.5 mIoU at 34 - 363 GFLOPs. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-s-l-tws-ros_8xb2-160k_ade20k-512x512.py']
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler'))
)
