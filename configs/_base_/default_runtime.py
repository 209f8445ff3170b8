_base_ = ['./default_hooks.py']
default_scope = 'mmseg'
custom_imports = dict(imports=['snnet_mm'], allow_failed_imports=False)
env_cfg = dict(
    cudnn_benchmark=True,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'),
)
randomness = dict(seed=0)
vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(
    type='SegLocalVisualizer', vis_backends=vis_backends, name='visualizer'
)
log_processor = dict(by_epoch=False)
log_level = 'INFO'
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
load_from = None
resume = False
