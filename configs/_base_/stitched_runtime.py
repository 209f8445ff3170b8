# What training and testing a stitched backbone adds, in any task.
_base_ = ['./default_runtime.py']
# Configs change entries of this list: _base_.custom_hooks[1].sampler.step = 1e9.
custom_hooks = [
    dict(type='StitchInitHook', num_images=100),
    dict(
        type='StitchSamplingHook',
        sampler=dict(type='ResourceConstrainedSampler', step=10e9),
    ),
]
# One iteration trains one stitch; the other blocks get no gradient.
find_unused_parameters = True
val_cfg = dict(type='StitchValLoop', stitches='anchors')
test_cfg = dict(type='StitchTestLoop', stitches='anchors')
