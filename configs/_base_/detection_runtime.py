# The runtime of detectors: mmdet's scope and visualizer. Configs set mmdet's hook,
# default_hooks.visualization, themselves: schedules own default_hooks.
_base_ = ['./default_runtime.py']
default_scope = 'mmdet'
visualizer = dict(type='DetLocalVisualizer')
