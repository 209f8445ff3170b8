# Hooks of all trainings by iterations, inherited by the runtimes. Configs add hooks
# under further keys. Checkpoints are written as often as the model is validated.
default_hooks = dict(
    exact_resume=dict(type='ExactResumeHook'),
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50, log_metric_by_epoch=False),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='StitchCheckpointHook', by_epoch=False),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    label_check=dict(type='LabelCheckHook'),
    loss_check=dict(type='LossCheckHook'),
    trainable_params=dict(type='TrainableParamsHook'),
    visualization=dict(type='SegVisualizationHook'),
)
