# The end of every config of `tools/new_project.py`, which replaces the values of the
# variables in front.
iters = 600
batch_size = 4
head_rate = 1e-3
backbone_rate = 3e-5
# These settings depend on the variables.
# Neck and head learn from scratch; at their rate a pretrained backbone would forget.
optim_wrapper = dict(
    optimizer=dict(lr=head_rate),
    paramwise_cfg=dict(
        custom_keys=dict(
            _delete_=True, backbone=dict(lr_mult=backbone_rate / head_rate)
        )
    ),
)
auto_scale_lr = dict(base_batch_size=batch_size)
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
train_cfg = dict(max_iters=iters, val_interval=interval)
default_hooks = dict(
    logger=dict(interval=10), checkpoint=dict(interval=interval, max_keep_ckpts=1)
)
