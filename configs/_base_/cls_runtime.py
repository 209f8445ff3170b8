# Runtime of classifiers, in mmpretrain's scope.
_base_ = ['./default_runtime.py']
default_scope = 'mmpretrain'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmpretrain'],
    allow_failed_imports=False,
)
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1), visualization=dict(type='VisualizationHook')
)
visualizer = dict(type='UniversalVisualizer')
