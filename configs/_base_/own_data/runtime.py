# Schedule and runtime at the end of every config of `tools/new_project.py`.
iters = 600
head_rate = 1e-3
backbone_rate = 3e-5
visualization = dict(type='SegVisualizationHook')
# ----------------------------------------------------------------------------------

# Neck and head learn from scratch; at their rate a pretrained backbone would forget.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=head_rate, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        norm_decay_mult=0,
        bias_decay_mult=0,
        custom_keys=dict(backbone=dict(lr_mult=backbone_rate / head_rate)),
    ),
    clip_grad=dict(max_norm=1.0),
)
warm_up = max(1, min(50, iters // 2))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=warm_up, by_epoch=False),
    dict(
        type='CosineAnnealingLR',
        eta_min=1e-6,
        begin=warm_up,
        end=iters,
        by_epoch=False,
    ),
]
interval = max(1, iters // 4)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=iters, val_interval=interval)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(
    exact_resume=dict(type='ExactResumeHook'),
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=10, log_metric_by_epoch=False),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(
        type='StitchCheckpointHook', by_epoch=False, interval=interval, max_keep_ckpts=1
    ),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    label_check=dict(type='LabelCheckHook'),
    trainable_params=dict(type='TrainableParamsHook'),
    visualization=visualization,
)
env_cfg = dict(
    cudnn_benchmark=True,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'),
)
randomness = dict(seed=0)
log_processor = dict(by_epoch=False)
log_level = 'INFO'
load_from = None
resume = False
