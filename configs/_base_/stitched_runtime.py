# Runtime for training and testing a stitched backbone in segmentation and depth.
# Configs change hooks by their keys:
# default_hooks = dict(stitch_sampling=dict(sampler=dict(step=1e9))).
_base_ = ['./default_runtime.py', './stitched.py']
_base_.stitch_hooks.stitch_sampling.sampler.step = 10e9
default_hooks = _base_.pop('stitch_hooks')
val_cfg, test_cfg = _base_.pop('stitch_loops')
