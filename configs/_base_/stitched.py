# Hooks and loops of every stitched model, beside a config of any of the mm packages:
#
#     _base_ = ['stock.py', __import__('snnet_mm').CONFIGS + '/_base_/stitched.py']
#     default_hooks = _base_.pop('stitch_hooks')
#     val_cfg, test_cfg = _base_.pop('stitch_loops')
#
# mmengine merges these keys into those of the stock config. Two bases cannot both have
# them, so they have other names here.
stitch_hooks = dict(
    stitch_init=dict(type='StitchInitHook', num_images=100),  # fits stitching layers
    stitch_sampling=dict(  # one stitch per iteration, by ROS
        type='StitchSamplingHook', sampler=dict(type='ResourceConstrainedSampler')
    ),
    stitch_report=dict(type='StitchReportHook'),
    stitch_statistics=dict(type='StitchStatisticsHook', num_images=200),  # batch norm
)
stitch_loops = [
    dict(type='StitchValLoop', stitches='anchors'),
    dict(type='StitchTestLoop', stitches='anchors'),
]
# An iteration trains one stitch, so blocks outside it get no gradient.
find_unused_parameters = True
