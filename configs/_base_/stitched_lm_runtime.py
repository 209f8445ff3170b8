# Runtime for training and testing a stitched language model (ESTA).
_base_ = ['./stitched_runtime.py']
default_scope = 'mmengine'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.language'],
    allow_failed_imports=False,
)
visualizer = dict(type='Visualizer')
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1),
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='ImportanceSampler', warm_up=100, num_groups=6)
    ),
    visualization=dict(type='EmptyCacheHook'),
)
