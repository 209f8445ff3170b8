# What SN-Netv1 needs on ImageNet-1K: every GPU draws a stitch of its own, uniformly, as
# the authors' code does.
_base_ = ['./stitched_cls_runtime.py']
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler', per_rank=True)
    )
)
