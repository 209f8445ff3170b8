# Runtime for training and testing a stitched detector.
default_scope = 'mmdet'
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmdet'], allow_failed_imports=False
)
default_hooks = dict(
    exact_resume=dict(type='ExactResumeHook'),
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50, log_metric_by_epoch=False),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='StitchCheckpointHook', by_epoch=False),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    training_check=dict(type='TrainingCheckHook'),
    loss_check=dict(type='LossCheckHook'),
    visualization=dict(type='DetVisualizationHook'),
    stitch_init=dict(type='StitchInitHook', num_images=100),
    stitch_sampling=dict(
        type='StitchSamplingHook',
        sampler=dict(type='ResourceConstrainedSampler', step=10e9),
    ),
    stitch_report=dict(type='StitchReportHook'),
    stitch_statistics=dict(type='StitchStatisticsHook', num_images=200),
)
# An iteration trains one stitch, so blocks outside it get no gradient.
find_unused_parameters = True
env_cfg = dict(
    cudnn_benchmark=True,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'),
)
randomness = dict(seed=0)
vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(
    type='DetLocalVisualizer', vis_backends=vis_backends, name='visualizer'
)
log_processor = dict(by_epoch=False)
log_level = 'INFO'
val_cfg = dict(type='StitchValLoop', stitches='anchors')
test_cfg = dict(type='StitchTestLoop', stitches='anchors')
load_from = None
resume = False
