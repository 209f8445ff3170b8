# What SN-Netv1 needs on ImageNet-1K, as in the authors' code: every GPU draws a stitch
# of its own, uniformly, and all are tested with training's batch norm statistics.
_base_ = ['./stitched_cls_runtime.py']
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler', per_rank=True)
    ),
    stitch_statistics=dict(num_images=0),
)
