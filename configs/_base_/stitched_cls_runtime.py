# What training and testing a stitched classifier needs; ROS has steps of 1 GFLOP. The
# data preprocessor of mmpretrain has no size, so that costs are told theirs.
_base_ = ['./stitched_runtime.py']
default_scope = 'mmpretrain'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.integrations.mmpretrain'],
    allow_failed_imports=False,
)
visualizer = dict(type='UniversalVisualizer')
custom_hooks = [
    dict(type='StitchInitHook', num_images=100),
    dict(
        type='StitchSamplingHook',
        sampler=dict(type='ResourceConstrainedSampler', step=1e9),
        input_size=(224, 224),
    ),
]
test_cfg = dict(input_size=(224, 224))
