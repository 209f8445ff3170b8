# Runtime for training and testing a stitched classifier; ROS has steps of 1 GFLOP.
_base_ = ['./cls_runtime.py', './stitched.py']
_base_.stitch_hooks.stitch_sampling.sampler.step = 1e9
default_hooks = _base_.pop('stitch_hooks')
val_cfg, test_cfg = _base_.pop('stitch_loops')
