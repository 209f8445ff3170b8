# Runtime of classifiers, in mmpretrain's scope.
_base_ = ['./default_runtime.py']
default_scope = 'mmpretrain'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.classification_parts'],
    allow_failed_imports=False,
)
visualizer = dict(type='UniversalVisualizer')
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1), visualization=dict(type='VisualizationHook')
)
