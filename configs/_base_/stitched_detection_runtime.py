# Runtime for training and testing a stitched detector.
_base_ = ['./stitched_runtime.py']
default_scope = 'mmdet'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.detection_parts'], allow_failed_imports=False
)
visualizer = dict(type='DetLocalVisualizer')
default_hooks = dict(visualization=dict(type='DetVisualizationHook'))
