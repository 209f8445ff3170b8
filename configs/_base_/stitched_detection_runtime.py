# What training and testing a stitched detector needs.
_base_ = ['./stitched_runtime.py']
default_scope = 'mmdet'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.integrations.mmdet'], allow_failed_imports=False
)
visualizer = dict(type='DetLocalVisualizer')
default_hooks = dict(visualization=dict(type='DetVisualizationHook'))
