# The schedule of ESTA, for classifiers.
_base_ = ['./adamw_cosine_esta.py']
default_hooks = dict(visualization=dict(type='VisualizationHook'))
