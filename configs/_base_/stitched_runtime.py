# Runtime for training and testing a stitched backbone, in any task. Configs change
# hooks by their keys:
# default_hooks = dict(stitch_sampling=dict(sampler=dict(step=1e9))).
_base_ = ['./default_runtime.py']
default_hooks = dict(
    stitch_init=dict(type='StitchInitHook', num_images=100),
    stitch_sampling=dict(
        type='StitchSamplingHook',
        sampler=dict(type='ResourceConstrainedSampler', step=10e9),
    ),
    stitch_report=dict(type='StitchReportHook'),
    stitch_statistics=dict(type='StitchStatisticsHook', num_images=200),
)
# An iteration trains one stitch, so blocks outside it get no gradient.
find_unused_parameters = True
val_cfg = dict(type='StitchValLoop', stitches='anchors')
test_cfg = dict(type='StitchTestLoop', stitches='anchors')
