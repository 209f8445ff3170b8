# Runtime for training and testing a stitched language model (ESTA).
_base_ = ['./lm_runtime.py', './stitched.py']
_base_.stitch_hooks.stitch_sampling.sampler = dict(
    type='ImportanceSampler', warm_up=100, num_groups=6
)
default_hooks = _base_.pop('stitch_hooks')
val_cfg, test_cfg = _base_.pop('stitch_loops')
