# What training and testing a stitched detector needs.
_base_ = ['./stitched_runtime.py']
default_scope = 'mmdet'
visualizer = dict(type='DetLocalVisualizer')
