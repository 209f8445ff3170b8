# Runtime for training and testing adapters between frozen classifiers. The networks
# themselves are evaluated, but never drawn.
_base_ = ['./cls_runtime.py']
default_hooks = dict(
    stitch_sampling=dict(
        type='StitchSamplingHook', sampler=dict(type='UniformSampler', anchors=False)
    ),
    stitch_report=dict(type='StitchReportHook'),
)
find_unused_parameters = True
val_cfg = dict(type='StitchValLoop', stitches='all')
test_cfg = dict(type='StitchTestLoop', stitches='all')
