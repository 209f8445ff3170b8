# Runtime of SN-Netv1 on ImageNet-1K, as in the authors' code: every GPU draws its own
# stitch uniformly, and all are tested with the batch norm statistics of training.
_base_ = ['./stitched_cls_runtime.py']
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler', per_rank=True)
    ),
    stitch_statistics=dict(num_images=0),
)
