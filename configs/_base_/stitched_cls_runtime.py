# What training and testing a stitched classifier needs; ROS has steps of 1 GFLOP.
_base_ = ['./stitched_runtime.py']
default_scope = 'mmpretrain'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.integrations.mmpretrain'],
    allow_failed_imports=False,
)
visualizer = dict(type='UniversalVisualizer')
custom_hooks = [
    dict(type='StitchInitHook', num_images=100),
    dict(
        type='StitchSamplingHook',
        sampler=dict(type='ResourceConstrainedSampler', step=1e9),
    ),
]
