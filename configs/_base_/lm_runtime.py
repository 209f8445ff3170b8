# Runtime of language models, which require transformers.
_base_ = ['./default_runtime.py']
default_scope = 'mmengine'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.language'],
    allow_failed_imports=False,
)
visualizer = dict(type='Visualizer')
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1),
    # Replaces the drawing hook, because mmengine does not accept None.
    visualization=dict(type='EmptyCacheHook'),
)
