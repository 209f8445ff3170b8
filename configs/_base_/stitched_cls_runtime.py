# What training and testing a stitched classifier needs; ROS has steps of 1 GFLOP.
_base_ = ['./stitched_runtime.py']
default_scope = 'mmpretrain'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.integrations.mmpretrain'],
    allow_failed_imports=False,
)
visualizer = dict(type='UniversalVisualizer')
_base_.custom_hooks[1].sampler.step = 1e9
