# The schedule of small ViTs trained from scratch, for classifiers.
_base_ = ['./adamw_cosine.py']
default_hooks = dict(visualization=dict(type='VisualizationHook'))
