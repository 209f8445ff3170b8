# Runtime of classifiers, in mmpretrain's scope.
default_scope = 'mmpretrain'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmpretrain'],
    allow_failed_imports=False,
)
default_hooks = dict(
    exact_resume=dict(type='ExactResumeHook'),
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50, log_metric_by_epoch=False),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='StitchCheckpointHook', by_epoch=False, max_keep_ckpts=1),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    training_check=dict(type='TrainingCheckHook'),
    loss_check=dict(type='LossCheckHook'),
    visualization=dict(type='VisualizationHook'),
)
env_cfg = dict(
    cudnn_benchmark=True,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'),
)
randomness = dict(seed=0)
vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(
    type='UniversalVisualizer', vis_backends=vis_backends, name='visualizer'
)
log_processor = dict(by_epoch=False)
log_level = 'INFO'
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
load_from = None
resume = False
