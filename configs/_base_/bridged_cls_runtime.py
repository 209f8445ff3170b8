# What training and testing adapters between frozen classifiers needs: the networks
# themselves are evaluated, never drawn.
_base_ = ['./stitched_cls_runtime.py']
custom_hooks = [
    dict(type='StitchSamplingHook', sampler=dict(type='UniformSampler', anchors=False))
]
val_cfg = dict(stitches='all')
test_cfg = dict(stitches='all')
