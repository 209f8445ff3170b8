# Runtime for training and testing a stitched detector.
_base_ = ['./detection_runtime.py', './stitched.py']
_base_.stitch_hooks.stitch_sampling.sampler.step = 10e9
default_hooks = _base_.pop('stitch_hooks')
val_cfg, test_cfg = _base_.pop('stitch_loops')
