# Runtime for training and testing a stitched classifier; ROS has steps of 1 GFLOP.
_base_ = ['./stitched_runtime.py']
default_scope = 'mmpretrain'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.classification_parts'],
    allow_failed_imports=False,
)
visualizer = dict(type='UniversalVisualizer')
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1),
    stitch_sampling=dict(sampler=dict(step=1e9)),
    visualization=dict(type='VisualizationHook'),
)
