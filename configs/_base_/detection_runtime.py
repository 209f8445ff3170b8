# Runtime of detectors: mmdet's scope and visualizer, and our metric.
_base_ = ['./default_runtime.py']
default_scope = 'mmdet'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmdet'], allow_failed_imports=False
)
default_hooks = dict(visualization=dict(type='DetVisualizationHook'))
visualizer = dict(type='DetLocalVisualizer')
