# The runtime of language models, which need transformers.
_base_ = ['./default_runtime.py']
default_scope = 'mmengine'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.language'],
    allow_failed_imports=False,
)
visualizer = dict(type='Visualizer')
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1),
    # In the place of a hook that draws, which mmengine takes no None for.
    visualization=dict(type='EmptyCacheHook'),
)
