# The runtime of detectors, which need mmdetection and mmcv's compiled ops.
_base_ = ['./default_runtime.py']
default_scope = 'mmdet'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.integrations.mmdet'], allow_failed_imports=False
)
visualizer = dict(type='DetLocalVisualizer')
